"""Texts and ids that are kept with what is cached have a limit, and the log counts them."""

import pytest

from radixkv import Namespace, PrefixCache
from radixkv.cache.events import EVENT_BYTES, EventLog
from radixkv.errors import InvalidContentError, InvalidNamespaceError
from radixkv.tree import DEFAULT, Changes, Stored
from radixkv.tree.tokens import as_token_ids


@pytest.mark.parametrize("field", ["salt", "adapter", "extra_key"])
def test_a_namespace_takes_256_bytes_a_field(field):
    assert Namespace(**{field: "é" * 128}).num_bytes == 256
    with pytest.raises(InvalidNamespaceError, match=f"{field} must be at most 256 bytes; got 258"):
        Namespace(**{field: "é" * 129})


def test_a_content_id_takes_256_bytes():
    cache = PrefixCache(8)
    cache.finish(done := cache.admit([1, 2], content=[(0, 1, b"x" * 256)]), up_to=done.length)
    with pytest.raises(InvalidContentError, match=r"content\[0\].id must be at most 256 bytes"):
        cache.admit([1, 2], content=[(0, 1, b"x" * 257)])


def test_the_log_counts_namespaces():
    """A log of so many bytes keeps fewer events under long namespaces."""

    def kept(namespace):
        log = EventLog(max_bytes=4 * (EVENT_BYTES + 260))
        for run in range(1, 20):
            log.append(Changes([Stored(run, 0, 0, as_token_ids([1]), namespace)]))
        return log.revision - log.compact_revision

    assert (kept(DEFAULT), kept(Namespace(salt="x" * 256))) == (7, 4)
