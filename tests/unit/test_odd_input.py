"""Odd input to every public verb: one clear error that names the argument, and nothing changes.

A row a verb and argument; what is odd for it is in `tests.support.odd_input`.
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from radixkv import PrefixCache, new_tree
from radixkv.cache.factory import new_ledger
from radixkv.cache.ledger import SlotLedger
from radixkv.cache.loans import Insert, Loans
from radixkv.errors import RadixKVError
from radixkv.memory import TokenToKVAllocator, new_allocator
from radixkv.router import PrefixIndex, Router
from radixkv.service import Client
from radixkv.service.client import admin_calls, calls, lease_calls, router_calls
from radixkv.service.client.lease_calls import InsertCall, LeaseRef
from radixkv.service.client.methods import built
from radixkv.tree import RadixTree
from radixkv.tree.factory import new_tickets
from radixkv.tree.shares import Share
from radixkv.tree.tickets import Tickets
from tests.support.caches import admit, picture, store
from tests.support.odd_input import ODD, given
from tests.support.trees import snapshot

P = [1, 2, 3, 4]


class CacheSubject:
    """A cache with a running, an ended and a retracted request, a pin and a loan."""

    def __init__(self, core: str) -> None:
        self.cache = cache = PrefixCache(64, page_size=2, core=core, policy="priority")
        store(cache, [*P, 5, 6])
        self.running = admit(cache, [*P, 7, 8])
        cache.publish(self.running, 4)
        self.retracted = admit(cache, [6, 6])
        cache.retract(self.retracted)
        self.loans = cache.loans
        self.pin = self.loans.pin(P)
        self.borrower = self.loans.new_borrower()
        lent = self.loans.allocate(self.borrower, 6)
        assert lent is not None
        self.lent = lent[0]

    def insert(self, **odd: Any) -> list[Insert]:
        usual: dict[str, Any] = {"token_ids": [9] * 4, "slots": self.lent[:4], "pin": self.pin}
        return [Insert(**usual | odd)]

    def picture(self) -> Any:
        tree = sorted(map(repr, snapshot(self.cache.tree)))
        pins = sorted(pin.length for pin in self.loans.pins)
        running = {each: getattr(self.running, each) for each in ("length", "capacity", "shared")}
        return (
            picture(self.cache), tree, pins, running, self.running.state, self.retracted.state,
            self.loans.borrower_of.tolist(), self.cache.events.position(),
            self.cache.weight_version, self.cache.check_integrity(),
        )  # fmt: skip


class TreeSubject:
    """A tree with a lock, its tickets and its ledger."""

    def __init__(self, core: str) -> None:
        self.tree = tree = new_tree(2, core=core, shares={"a": Share(2)})
        self.ledger = new_ledger(new_allocator(32, 2, core))
        self.row = np.zeros(32, np.int32)
        self.slots = self.ledger.take(8)
        assert self.slots is not None
        self.tree.insert(P, self.slots[:4])
        self.handle = tree.match_prefix(P[:2]).handle
        tree.inc_lock_ref(self.handle)
        self.numbers = new_tree(core=core)
        self.tickets = new_tickets(8, core)
        self.numbers.insert_from([5, 6], self.tickets)

    def picture(self) -> Any:
        trees = [sorted(map(repr, snapshot(tree))) for tree in (self.tree, self.numbers)]
        checked = [*self.tree.check_integrity(), *self.numbers.check_integrity()]
        return trees, checked, self.ledger.free_size, self.tickets.free_size


class MemorySubject:
    """An allocator, its ledger and tickets; some of each are taken."""

    def __init__(self, core: str) -> None:
        self.allocator = new_allocator(16, 2, core)
        self.ledger = new_ledger(self.allocator)
        self.taken = self.ledger.take(4)
        self.tickets = new_tickets(8, core)
        self.tickets.take(3)

    def picture(self) -> Any:
        free = self.allocator.free_slots().tolist()
        return free, self.ledger.deferred_size, self.ledger.free_size, self.tickets.free_size


class RouterSubject:
    """A router with two workers, one of which holds something, and an open pick."""

    def __init__(self, core: str) -> None:
        self.router = Router(core=core)
        for name in ("a", "b"):
            self.router.add_worker(name, num_slots=64)
        cache = PrefixCache(16, core=core)
        store(cache, P)
        self.update = cache.events.read(0, 0, 1 << 20)
        self.router.apply("b", self.update)
        self.index = self.router.index
        self.pick = self.router.pick(P)

    def picture(self) -> Any:
        workers = [
            (each.view._replace(silent_s=0), each.address, each.load)
            for each in self.router.workers()
        ]
        held = [repr(self.index.runs(name)) for name in ("a", "b")]
        return workers, held, self.index.check_integrity(), self.router.num_open("")


class NoSubject:
    """What is made or written anew changes nothing."""

    def __init__(self, core: str) -> None:
        self.core = core
        self.lease = LeaseRef(1, 2)

    def picture(self) -> None:
        return None


class Row(NamedTuple):
    subject: type
    verb: str
    argument: str
    kind: str
    how: Callable[..., object]

    def call(self, subject: Any, odd: Any) -> object:
        return self.how(subject, **{self.argument: odd})


def rows(subject: type, verb: str, how: Callable[..., object], **kinds: str) -> list[Row]:
    """A row for each argument: how(subject, argument=odd)."""
    return [Row(subject, verb, argument, kind, how) for argument, kind in kinds.items()]


def method_rows(
    subject: type, of: Callable[[Any], Any], verb: str, usual: dict[str, Any], **kinds: str
) -> list[Row]:
    def how(s: Any, **odd: Any) -> object:
        fixed = {name: value(s) if callable(value) else value for name, value in usual.items()}
        return getattr(of(s), verb)(**fixed | odd)

    return rows(subject, verb, how, **kinds)


def _cache(s: Any) -> Any:
    return s.cache


def _loans(s: Any) -> Any:
    return s.loans


def _tree(s: Any) -> Any:
    return s.tree


LOOK = {"token_ids": "tokens", "namespace": "namespace", "content": "content", "checked": "flag"}
BATCH = {"prompts": "prompts", "namespace": "namespace", "checked": "flag"}
RUNNING = {"request": lambda s: s.running}


def cache_rows(verb: str, usual: dict[str, Any], **kinds: str) -> list[Row]:
    return method_rows(CacheSubject, _cache, verb, usual, **kinds)


def loan_rows(verb: str, usual: dict[str, Any], **kinds: str) -> list[Row]:
    return method_rows(CacheSubject, _loans, verb, usual, **kinds)


def tree_rows(verb: str, usual: dict[str, Any], **kinds: str) -> list[Row]:
    return method_rows(TreeSubject, _tree, verb, usual, **kinds)


CACHE = [
    *cache_rows("match_prefix", {"token_ids": P}, **LOOK),
    *cache_rows("probe", {"token_ids": P}, **LOOK),
    *cache_rows("match_batch", {"prompts": [P]}, **BATCH),
    *cache_rows("match_lengths", {"prompts": [P]}, **BATCH),
    *cache_rows("probe_batch", {"prompts": [P]}, **BATCH),
    *cache_rows(
        "admit", {"token_ids": P}, token_ids="tokens", namespace="namespace", content="content",
        store="flag", max_cached="optional count", priority="priority", resume="optional request",
    ),
    *cache_rows("extend", RUNNING | {"token_ids": [9]}, request="request", token_ids="tokens"),
    *cache_rows("reserve", RUNNING | {"n": 1}, request="request", n="count"),
    *cache_rows("commit", RUNNING | {"token_ids": []}, request="request", token_ids="tokens"),
    *cache_rows("publish", RUNNING | {"up_to": 6}, request="request", up_to="count", fence="fence"),
    *cache_rows(
        "finish", RUNNING | {"up_to": 6}, request="request", up_to="optional count", fence="fence"
    ),
    *cache_rows("abort", RUNNING, request="optional request", fence="fence"),
    *cache_rows("retract", RUNNING, request="request", fence="fence"),
    *cache_rows("fork", RUNNING | {"n": 1}, request="request", n="count", fence="fence"),
    *cache_rows("rollback", RUNNING | {"length": 3}, request="request", length="count",
                fence="fence"),
    *cache_rows("evict", {}, num_tokens="count"),
    *cache_rows("evict_below", {"token_ids": P[:2]}, token_ids="tokens", namespace="namespace",
                content="content"),
    *cache_rows("set_weight_version", {}, version="count"),
    *cache_rows("reset", {}, force="flag"),
    *cache_rows("why_full", {"num_tokens": 1}, num_tokens="count", namespace="namespace"),
    *cache_rows("present", {}, namespace="namespace"),
]  # fmt: skip
RESUMED = {"token_ids": [6, 6], "resume": lambda s: s.retracted}
RESUME = cache_rows(
    "admit", RESUMED, token_ids="tokens", namespace="namespace", content="content", store="flag",
    max_cached="optional count", priority="priority",
)  # fmt: skip
LOANS = [
    *loan_rows("pin", {"token_ids": P}, **LOOK),
    *loan_rows("unpin", {}, pin="object"),
    *loan_rows("allocate", {"borrower": lambda s: s.borrower, "n": 2}, borrower="count",
               n="count", namespace="optional namespace"),
    *loan_rows("give_back", {"borrower": lambda s: s.borrower, "slots": lambda s: s.lent[:2]},
               borrower="count", slots="slots"),
    *loan_rows("slots_of", {}, borrower="count"),
    *loan_rows("set_aside", {"borrower": lambda s: s.borrower, "pins": []},
               borrower="optional count", pins="objects"),
    *loan_rows("free_aside", {}, aside="object"),
    *loan_rows("store", {"borrower": lambda s: s.borrower, "inserts": lambda s: s.insert()},
               borrower="count", inserts="objects", namespace="namespace", checked="flag"),
    *rows(CacheSubject, "store", lambda s, **odd: s.loans.store(s.borrower, s.insert(**odd)),
          token_ids="tokens", slots="slots", content="content", pin="optional object", keep="flag",
          priority="priority"),
    *rows(CacheSubject, "store",
          lambda s, **odd: s.loans.store(s.borrower, s.insert(**odd), checked=True),
          token_ids="tokens", slots="slots", content="content"),
]  # fmt: skip
TREE = [
    *tree_rows("match_prefix", {"token_ids": P}, **LOOK),
    *tree_rows("match_prefix", {"token_ids": P, "checked": True}, token_ids="tokens",
               content="content"),
    *tree_rows("match_handle", {"token_ids": P}, token_ids="tokens", namespace="namespace",
               content="content"),
    *tree_rows("path_slots", {}, handle="handle"),
    *tree_rows("path_slices", {"handle": lambda s: s.handle, "most": 1}, handle="handle",
               most="count"),
    *tree_rows("match_batch", {"prompts": [P]}, **BATCH),
    *tree_rows("match_lengths", {"prompts": [P]}, **BATCH),
    *tree_rows("match_lengths", {"checked": True}, prompts="prompts"),
    *tree_rows("probe", {"token_ids": P}, **LOOK),
    *tree_rows("probe_batch", {"prompts": [P]}, **BATCH),
    *tree_rows("inc_lock_ref", {}, handle="handle"),
    *tree_rows("dec_lock_ref", {}, handle="handle"),
    *tree_rows("insert", {"token_ids": [5, 6], "slots": lambda s: s.slots[4:6]},
               token_ids="tokens", slots="slots", namespace="namespace", content="content",
               priority="int", chunked="flag", after="optional handle", checked="flag"),
    *tree_rows("insert", {"token_ids": [5, 6], "slots": lambda s: s.slots[4:6], "checked": True},
               token_ids="tokens", slots="slots", content="content"),
    *tree_rows("advance_clock", {}, milliseconds="count"),
    *tree_rows("evict", {"num_tokens": 2}, num_tokens="count", namespace="optional namespace",
               wanted="count"),
    *tree_rows("evict_below", {"token_ids": P[:2]}, token_ids="tokens", namespace="namespace",
               content="content"),
    *tree_rows("path_of", {}, handle="handle"),
    *tree_rows("namespace_of", {}, handle="handle"),
    *tree_rows("room_for", {}, namespace="optional namespace"),
    *tree_rows("sizes_of", {}, namespace="namespace"),
    *method_rows(TreeSubject, lambda s: s.numbers, "insert_from",
                 {"token_ids": [5, 7], "tickets": lambda s: s.tickets}, token_ids="tokens",
                 tickets="object", namespace="namespace", priority="int", chunked="flag",
                 after="optional handle"),
    *method_rows(TreeSubject, lambda s: s.numbers, "evict_to",
                 {"tickets": lambda s: s.tickets, "num_tokens": 1, "most": 1}, tickets="object",
                 num_tokens="count", most="count"),
]  # fmt: skip
MEMORY = [
    *method_rows(MemorySubject, lambda s: s.allocator, "allocate", {}, n="count"),
    *method_rows(MemorySubject, lambda s: s.allocator, "free", {}, slots="slots"),
    *method_rows(MemorySubject, lambda s: s.ledger, "take", {}, n="count"),
    *method_rows(MemorySubject, lambda s: s.tickets, "take", {}, n="count"),
    *method_rows(MemorySubject, lambda s: s.tickets, "free", {}, tickets="slots"),
]
ROUTER = [
    *method_rows(RouterSubject, lambda s: s.router, "add_worker", {"worker": "c"}, worker="name",
                 source="optional callable", page_size="count", num_slots="optional count",
                 address="text"),
    *method_rows(RouterSubject, lambda s: s.router, "follow",
                 {"worker": "c", "client": SimpleNamespace(watch=print)}, worker="name",
                 client="object", address="text"),
    *method_rows(RouterSubject, lambda s: s.router, "remove_worker", {}, worker="name"),
    *method_rows(RouterSubject, lambda s: s.router, "apply",
                 {"worker": "a", "update": lambda s: s.update}, worker="name", update="object"),
    *method_rows(RouterSubject, lambda s: s.router, "pick", {"token_ids": P}, token_ids="tokens",
                 namespace="namespace", content="content", key="optional name",
                 loads="loads", load_weight="seconds", owner="name"),
    *method_rows(RouterSubject, lambda s: s.router, "finish", {}, pick="object"),
    *method_rows(RouterSubject, lambda s: s.router, "finish_by_id", {"pick_id": 1},
                 pick_id="int", owner="name"),
    *method_rows(RouterSubject, lambda s: s.router, "num_open", {}, owner="name"),
    *method_rows(RouterSubject, lambda s: s.index, "add_worker", {"worker": "c"}, worker="name",
                 page_size="count", num_slots="optional count"),
    *method_rows(RouterSubject, lambda s: s.index, "set_pool",
                 {"worker": "a", "page_size": 1, "num_slots": 8}, worker="name", page_size="count",
                 num_slots="optional count"),
    *method_rows(RouterSubject, lambda s: s.index, "remove_worker", {}, worker="name"),
    *method_rows(RouterSubject, lambda s: s.index, "apply",
                 {"worker": "a", "update": lambda s: s.update}, worker="name", update="object"),
    *method_rows(RouterSubject, lambda s: s.index, "position", {}, worker="name"),
    *method_rows(RouterSubject, lambda s: s.index, "note_revision",
                 {"worker": "b", "epoch": 1, "revision": 1}, worker="name", epoch="count",
                 revision="count"),
    *method_rows(RouterSubject, lambda s: s.index, "lose", {}, worker="name"),
    *method_rows(RouterSubject, lambda s: s.index, "lengths", {"token_ids": P}, token_ids="tokens",
                 namespace="namespace", content="content"),
    *method_rows(RouterSubject, lambda s: s.index, "lookup", {"token_ids": P}, token_ids="tokens",
                 namespace="namespace", content="content"),
    *method_rows(RouterSubject, lambda s: s.index, "length", {"worker": "b", "token_ids": P},
                 worker="name", token_ids="tokens", namespace="namespace"),
    *method_rows(RouterSubject, lambda s: s.index, "view", {}, worker="name"),
    *method_rows(RouterSubject, lambda s: s.index, "runs", {}, worker="name"),
]  # fmt: skip


def made(make: Callable[..., object], usual: dict[str, Any], **kinds: str) -> list[Row]:
    return rows(
        NoSubject, make.__name__, lambda s, **odd: make(**usual | {"core": s.core} | odd), **kinds
    )


MAKERS = [
    *made(PrefixCache, {"num_slots": 8}, num_slots="count", max_requests="count",
          max_context_len="optional count", page_size="count", policy="object",
          core="optional object", max_cached_tokens="optional count", estimate_capacity="flag",
          shares="shares"),
    *made(new_tree, {}, page_size="count", policy="object", core="optional object",
          shares="shares"),
    *made(new_allocator, {"num_slots": 8}, num_slots="count", page_size="count",
          core="optional object"),
    *made(new_tickets, {"num_tickets": 8}, num_tickets="count", core="optional object"),
    *made(Router, {}, policy="object", core="optional object", silent_after_s="window",
          gone_after_s="window", load_window_s="window", recent_half_life_s="window",
          probe_every_s="seconds"),
    *rows(NoSubject, "Share", lambda s, **odd: Share(**odd), reserve="count", cap="optional count"),
]  # fmt: skip


def written(build: Callable[..., Any], usual: dict[str, Any], **kinds: str) -> list[Row]:
    """Calls of a client, as far as their messages."""

    def how(s: Any, **odd: Any) -> object:
        lease = {"lease": s.lease} if "lease" in inspect.signature(build).parameters else {}
        return built(build, **lease | usual | odd).encode()

    return rows(NoSubject, f"{build.__module__.split('.')[-1]}.{build.__name__}", how, **kinds)


def watched(_: Any, **odd: Any) -> object:
    with Client("127.0.0.1:1") as client:
        return client.watch(**odd)


ASKED = {"namespace": "optional namespace", "timeout_s": "optional seconds"}


def insert_rows(**kinds: str) -> list[Row]:
    usual = {"token_ids": [1, 2], "slots": [3, 4]}
    return rows(
        NoSubject, "lease_calls.insert",
        lambda s, **odd: built(lease_calls.insert, s.lease, InsertCall(**usual | odd)), **kinds
    )  # fmt: skip


CLIENT = [
    *written(calls.match, {"prompts": P}, prompts="client prompts", probe="flag", want_slots="flag",
             leave_last_token="flag", expected_epoch="count", **ASKED),
    *written(calls.server_info, {}, timeout_s="optional seconds"),
    *written(calls.stats, {}, **ASKED),
    *written(lease_calls.grant, {"ttl_s": 1.0}, ttl_s="seconds", holder="text", pool_id="text",
             replaces_pool="flag", timeout_s="optional seconds"),
    *written(lease_calls.lease_info, {"lease_id": 1}, lease_id="count",
             timeout_s="optional seconds"),
    *written(lease_calls.holdings, {}, timeout_s="optional seconds"),
    *written(lease_calls.leases, {}, page_token="text", page_size="count",
             timeout_s="optional seconds"),
    *written(lease_calls.revoke_lease, {"lease_id": 1, "epoch": 1}, lease_id="count",
             epoch="count", timeout_s="optional seconds"),
    *written(lease_calls.pin, {"prompts": P}, prompts="client prompts", want_slots="flag",
             leave_last_token="flag", request_id="optional text", **ASKED),
    *written(lease_calls.allocate, {"n": 1}, n="count", timeout_s="optional seconds",
             request_id="optional text"),
    *written(lease_calls.free, {"slots": [1]}, slots="slots", timeout_s="optional seconds"),
    *written(lease_calls.insert, {"inserts": InsertCall([1], [2])}, inserts="objects",
             request_id="optional text", **ASKED),
    *insert_rows(token_ids="tokens", slots="slots", pin_id="count", keep="flag", content="content",
                 priority="priority"),
    *written(lease_calls.release, {"pin_ids": [1]}, pin_ids="ids", timeout_s="optional seconds"),
    *written(admin_calls.evict, {"num_tokens": 1}, num_tokens="count",
             timeout_s="optional seconds"),
    *written(admin_calls.evict_below, {"prompt": P}, prompt="tokens", **ASKED),
    *written(admin_calls.clear, {}, force="flag", timeout_s="optional seconds"),
    *written(admin_calls.check, {}, timeout_s="optional seconds"),
    *written(router_calls.pick, {"prompt": P}, prompt="tokens", key="optional text",
             loads="client loads", load_weight="seconds", finished="ids", **ASKED),
    *rows(NoSubject, "Client", lambda s, **odd: Client(**{"target": "127.0.0.1:1"} | odd),
          target="text", token="optional text", tls="optional object",
          timeout_s="optional seconds", coalesce="flag"),
    *rows(NoSubject, "Client.watch", watched,
          namespace="optional namespace", after="place"),
    *rows(NoSubject, "router_calls.finish",
          lambda s, **odd: built(router_calls.finish, *odd["pick_ids"]), pick_ids="several ids"),
    *rows(NoSubject, "router_calls.finish", lambda s, **odd: built(router_calls.finish, 1, **odd),
          timeout_s="optional seconds"),
    *written(router_calls.lookup, {"prompt": P}, prompt="tokens", **ASKED),
    *written(router_calls.workers, {}, timeout_s="optional seconds"),
    *written(router_calls.add_worker, {"address": "a:1"}, address="text", worker="text",
             timeout_s="optional seconds"),
    *written(router_calls.remove_worker, {"worker": "a"}, worker="text",
             timeout_s="optional seconds"),
]  # fmt: skip
ALL = [*CACHE, *RESUME, *LOANS, *TREE, *MEMORY, *ROUTER, *MAKERS, *CLIENT]


@pytest.mark.parametrize(
    "row", ALL, ids=[f"{row.subject.__name__[:-7]}-{row.verb}-{row.argument}" for row in ALL]
)
def test_odd_input_is_refused_by_name_and_changes_nothing(core, row):
    subject = row.subject(core)
    before = subject.picture()
    for odd in ODD[row.kind]:
        with pytest.raises(RadixKVError) as caught:
            row.call(subject, given(odd))
        message = str(caught.value)
        assert row.argument in message, (odd, message)
        assert "must" in message, (odd, message)
        assert subject.picture() == before, odd


# ---- that no verb and no argument is forgotten ----

# Their callers check and read what they hand over, once: see the contracts.
CHECKED_BEFORE = {
    "RadixTree.admit", "RadixTree.publish", "RadixTree.take", "RadixTree.evict_into",
    "RadixTree.evict_below_into", "RadixTree.evict_beyond_caps_into", "RadixTree.reset_into",
    "TokenToKVAllocator.check_range", "SlotLedger.check_range", "SlotLedger.give_back",
    "SlotLedger.free", "SlotLedger.share", "SlotLedger.retire",
    "RadixTree.slot_marks", "RadixTree.begin_check", "TokenToKVAllocator.free_marks",  # for checks
}  # fmt: skip
SUBJECT_OF = {
    PrefixCache: CacheSubject, Loans: CacheSubject, RadixTree: TreeSubject, Tickets: MemorySubject,
    TokenToKVAllocator: MemorySubject, SlotLedger: MemorySubject, Router: RouterSubject,
    PrefixIndex: RouterSubject,
}  # fmt: skip
CALLS = [
    (f"{module.__name__.split('.')[-1]}.{name}", function)
    for module in (calls, lease_calls, admin_calls, router_calls)
    for name, function in vars(module).items()
    if inspect.isfunction(function)
    and function.__module__ == module.__name__
    and not name.startswith("_")
    and "ClientCall" in str(inspect.signature(function).return_annotation)
]


def arguments_of(function):
    return {
        name for name in inspect.signature(function).parameters if name not in ("self", "lease")
    }


def verbs_of(owner):
    return {
        name: verb
        for name, verb in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(verb) and arguments_of(verb)
    }


@pytest.mark.parametrize("owner", SUBJECT_OF, ids=lambda owner: owner.__name__)
def test_every_argument_of_every_public_verb_has_a_row(owner):
    tested = {(row.verb, row.argument) for row in ALL if row.subject is SUBJECT_OF[owner]}
    missing = {
        (name, argument)
        for name, verb in verbs_of(owner).items()
        if f"{owner.__name__}.{name}" not in CHECKED_BEFORE
        for argument in arguments_of(verb)
        if (name, argument) not in tested
    }
    assert not missing


def test_every_argument_of_every_call_of_a_client_has_a_row():
    tested = {(row.verb, row.argument) for row in CLIENT}
    assert len(CALLS) > 15
    assert not {
        (name, argument)
        for name, function in CALLS
        for argument in arguments_of(function)
        if (name, argument) not in tested
    }
