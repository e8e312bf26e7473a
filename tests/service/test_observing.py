"""What operators see: Prometheus figures, traces."""

import logging
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from radixkv import Namespace, PrefixCache, errors
from radixkv.rpc import limits
from radixkv.service import CacheServer
from tests.support.service import connect, figures, hold
from tests.support.waiting import wait_until


@pytest.fixture
def server_options():
    return {"metrics": "127.0.0.1:0", "tenants": {"blue": "secret salt of blue"}}


def test_sizes_and_counters_are_the_caches_own(cache, server, client):
    hold(cache, [1, 2, 3])
    client.match([1, 2, 9])
    with client.lease(60) as lease, client.watch() as watch:
        next(watch)
        lease.pin([1, 2], leave_last_token=False)
        cache.evict(1)
        found = figures(server)
    stats = cache.stats()
    assert found["radixkv_free_slots", ""] == 62
    assert found["radixkv_protected_size", ""] == 2
    assert (found["radixkv_leases", ""], found["radixkv_pins", ""]) == (1, 1)
    assert found["radixkv_watchers", ""] == 1
    assert found["radixkv_lookup_tokens_total", ""] == stats.lookup_tokens
    assert found["radixkv_hit_tokens_total", ""] == stats.hit_tokens
    assert found["radixkv_evicted_tokens_total", ""] == 1
    assert found["radixkv_revision", ""] == cache.events.revision
    assert found["radixkv_watch_lag_revisions", ""] in (0, 1)


def test_what_other_amounts_of_memory_would_give():
    cache = PrefixCache(1500, estimate_capacity=True)
    prompts = [[each] * 960 for each in range(3)]  # twice the memory would hold all of them
    with CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0") as server:
        for prompt in 10 * prompts:
            cache.finish(done := cache.admit(prompt), up_to=done.length)
        found = figures(server)
    names = ("half", "same", "twice", "four_times")
    half, same, twice, four = (found[f"radixkv_estimated_hit_rate_{name}", ""] for name in names)
    assert half == same == 0
    assert 0.85 < twice <= four < 0.9
    assert cache.stats().hit_tokens == 0


def test_without_an_estimator_no_estimate_is_told(server):
    assert not any("estimated" in name for name, _ in figures(server))


def test_calls_by_method_and_code(server, client):
    client.match([1])
    with pytest.raises(errors.EpochMismatchError):
        client.match([1], expected_epoch=1)
    found = figures(server)
    method = "/radixkv.v1.PrefixCacheService/MatchPrefix"
    assert found["radixkv_calls_started_total", method] == 2
    assert found["radixkv_call_duration_seconds_count", f"{method},OK"] == 1
    assert found["radixkv_call_duration_seconds_count", f"{method},FAILED_PRECONDITION"] == 1


def test_calls_that_waited_for_the_writer(server, client):
    client.match([1])  # answered at once, in the loop
    assert figures(server)["radixkv_writer_wait_seconds_count", ""] == 0
    client.evict(1)
    assert figures(server)["radixkv_writer_wait_seconds_count", ""] == 1


def test_a_slow_call_is_a_line_of_the_log_and_a_stream_is_not(client, caplog, monkeypatch):
    monkeypatch.setattr(limits, "SLOW_CALL_S", 0.0)
    caplog.set_level(logging.WARNING, logger="radixkv")
    with client.watch() as watch:
        next(watch)
    client.match([1, 2])
    with pytest.raises(errors.LeaseNotFoundError):
        client.lease_info(7)
    wait_until(lambda: len(caplog.records) == 2)
    slow, failed = caplog.records
    assert (slow.method, slow.code) == ("/radixkv.v1.PrefixCacheService/MatchPrefix", "OK")
    assert (failed.method, failed.code) == ("/radixkv.v1.LeaseService/GetLease", "NOT_FOUND")
    assert slow.ms > 0
    assert slow.getMessage().endswith(" s")


def test_a_quick_call_is_not_told(client, caplog, monkeypatch):
    monkeypatch.setattr(limits, "SLOW_CALL_S", 1e9)
    caplog.set_level(logging.INFO, logger="radixkv.rpc")
    client.match([1, 2])
    client.stats()
    assert caplog.records == []


def test_a_cleared_cache_is_a_line_of_the_log(cache, client, caplog):
    hold(cache, [1, 2, 3])
    client.clear()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "cache cleared, 3 tokens are gone: a caller asked for it"


def test_tenants_are_told_by_alias_never_by_salt(cache, server, client):
    blue = Namespace(salt="secret salt of blue")
    hold(cache, [1, 2, 3], blue)
    client.match([1, 2, 3, 4], blue)
    client.match([1, 2], Namespace(salt="another"))
    client.match([1, 2], blue, probe=True)
    found = figures(server)
    assert found["radixkv_tenant_lookup_tokens_total", "blue"] == 4
    assert found["radixkv_tenant_hit_tokens_total", "blue"] == 3
    assert found["radixkv_tenant_lookup_tokens_total", "others"] == 2
    assert not any("salt" in part or "another" in part for key in found for part in key)


def test_the_port_ends_with_the_server(cache):
    with CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0") as server:
        figures(server)
    with pytest.raises(urllib.error.URLError):
        figures(server)


@pytest.mark.parametrize("where", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "192.0.2.1:80"])
def test_where_no_figures_can_be_told(cache, where):
    with (
        pytest.raises(errors.ListenError, match="cannot serve metrics"),
        CacheServer(cache, "127.0.0.1:0", metrics=where),
    ):
        pass


def page(server, path):
    """Status and text."""
    try:
        with urllib.request.urlopen(f"http://{server.metrics_address}{path}", timeout=30) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_beside_the_figures(cache):
    with CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0") as server:
        assert page(server, "/healthz") == (200, "alive\n")
        assert page(server, "/readyz") == (200, "ready\n")
        assert page(server, "/metrics")[0] == 200
        for other in ("/", "/metricsx", "/nowhere"):
            assert page(server, other) == (404, "pages: /metrics /healthz /readyz\n")


def test_every_figure_says_what_it_is(cache):
    """Help is a sentence, not the name again."""
    with CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0") as server:
        _, text = page(server, "/metrics")
    families = list(text_string_to_metric_families(text))
    assert {"radixkv_num_slots", "radixkv_free_slots", "radixkv_build_info"} <= {
        each.name for each in families
    }
    for family in families:
        words = family.name.removeprefix("radixkv_").replace("_", " ")
        assert family.documentation.lower() not in ("", words)


def test_a_server_that_drains_is_not_ready(cache):
    server = CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0", drain_delay_s=2.0)
    with server, ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(server.stop)
        end = time.monotonic() + 30
        while page(server, "/readyz")[0] == 200:
            assert time.monotonic() < end
        assert page(server, "/readyz") == (503, "draining, or broken\n")
        assert page(server, "/healthz")[0] == 200
        stopping.result()


def test_a_broken_cache_is_not_ready(cache):
    with (
        CacheServer(cache, "127.0.0.1:0", metrics="127.0.0.1:0") as server,
        connect(server.address) as client,
    ):
        cache.loans.borrower_of[3] = 1
        assert client.check()
        assert page(server, "/readyz")[0] == 503


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_figures_on_an_address_of_ipv6(cache):
    with CacheServer(cache, "127.0.0.1:0", metrics="[::1]:0") as server:
        assert server.metrics_address.startswith("[::1]:")
        assert page(server, "/healthz") == (200, "alive\n")


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_start_that_fails_keeps_neither_port_and_may_be_repeated(cache):
    address, metrics = free_address(), free_address()
    for taken in (metrics, address):
        with CacheServer(PrefixCache(8), taken):
            server = CacheServer(cache, address, metrics=metrics)
            with pytest.raises(errors.ListenError, match=taken):
                server.start()
        with server, connect(server.address) as client:
            assert client.match([1]).lengths == [0]
            assert figures(server)["radixkv_revision", ""] == 0


@pytest.fixture(scope="module")
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_a_call_is_a_span_below_its_callers(address, spans):
    spans.clear()
    with (
        CacheServer(PrefixCache(8), address, tracing=True) as server,
        connect(server.address) as client,
    ):
        with trace.get_tracer("test").start_as_current_span("request") as outer:
            client.match([1])
        with pytest.raises(errors.EpochMismatchError):
            client.match([1], expected_epoch=1)
    good, request, bad = spans.get_finished_spans()
    assert request.name == "request"
    assert good.name == "radixkv.v1.PrefixCacheService/MatchPrefix"
    assert good.parent.span_id == outer.get_span_context().span_id
    assert good.attributes["rpc.method"] == "MatchPrefix"
    assert good.attributes["rpc.grpc.status_code"] == 0
    assert bad.parent is None
    assert (bad.attributes["rpc.grpc.status_code"], bad.status.description) == (9, "EPOCH_MISMATCH")


def test_tracing_without_its_package_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(errors.BackendUnavailableError, match=r"\.\[tracing\]"):
        CacheServer(PrefixCache(4), tracing=True)
