"""Fails each allocation once, in every call, and says what is broken afterwards.

    LD_PRELOAD=failing.so python -m tests.differential.failing WHOSE PAGE_SIZE POLICY ...

WHOSE: "core", the native core's; or "python", the interpreter's, where PYTHONMALLOC=malloc. NumPy's
own are left out: it does not survive them. Prints a JSON object: how many allocations failed, the
faults, and in which calls the cache refused service.
"""

import ctypes
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from radixkv import Namespace, PrefixCache, errors
from radixkv.cache.loans import Insert
from radixkv.cache.request import Request
from radixkv.tree import DEFAULT
from radixkv.tree.factory import new_tickets, new_tree

MOST_ALLOCATIONS = 1000
NUM_PAGES = 64

# Has what failing.cpp defines, where that was loaded first.
_process = ctypes.CDLL(None)


class Fence:
    """Device work that is not done yet."""

    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done


class TicketTree:
    """A tree whose slots are tickets, beside the cache."""

    def __init__(self, page_size: int, policy: str) -> None:
        self.tree = new_tree(page_size, policy, "native")
        self.tickets = new_tickets(NUM_PAGES * page_size, "native")
        self.tree.track_changes()

    def state(self) -> dict[str, Any]:
        """What anyone can tell of it; nothing of recency."""
        slots = sorted(slot for node in self.tree.walk() for slot in node.slots.tolist())
        return {
            "tickets": self.tickets.free_size,
            "ticket slots": slots,
            "ticket sizes": (self.tree.evictable_size, self.tree.protected_size),
        }

    def check(self) -> Iterator[str]:
        """What is broken."""
        yield from self.tree.check_integrity()
        held = NUM_PAGES * self.tree.page_size - self.tickets.free_size
        if self.tree.total_size != held:
            yield f"{self.tree.total_size} tokens are cached and {held} tickets are held"


class Subject:
    """A cache with branches, a lock, a pin, a loan and something behind a fence.

    Tokens are doubled for each page: `key` gives a page for each number.
    """

    def __init__(self, page_size: int, policy: str) -> None:
        self.page_size = page_size
        self.cache = cache = PrefixCache(
            NUM_PAGES * page_size, page_size=page_size, policy=policy, max_requests=64
        )
        for base in range(6):
            self.serve(base, 1, 2, 3, 4, 5, base + 10)
        self.serve(0, 1, 2, 9, 9)
        self.serve(0, 1, 2, 9, 8)
        self.serve(0, 1, 2, 3, 4, 5)
        other = Namespace(salt="other")
        cache.finish(done := self.admit(self.key(1, 2, 3), other), up_to=done.length)
        cache.finish(
            done := self.admit(self.key(7, 7, 7), content=[(0, page_size, b"image")]),
            up_to=done.length,
        )
        self.ticketed = TicketTree(page_size, policy)
        for last in (3, 4):
            self.insert_from(1, 2, last)
        self.fence = Fence()
        self.live = self.admit(self.key(1, 1, 2, 3, 7, 7))
        self.part = self.admit([*self.key(4, 1, 2, 6), 1])
        self.private = self.admit(self.key(3, 1, 8), store=False)
        self.pinned = cache.loans.pin(self.key(5, 1, 2))
        self.borrower = cache.loans.new_borrower()
        lent = cache.loans.allocate(self.borrower, 8 * page_size)
        assert lent is not None
        self.lent, _ = lent

    def admit(self, tokens: list[int], namespace: Namespace = DEFAULT, **how: Any) -> Request:
        request = self.cache.admit(tokens, namespace, **how)
        assert request is not None
        return request

    def key(self, *pages: int) -> list[int]:
        return [token for token in pages for _ in range(self.page_size)]

    def serve(self, *pages: int) -> None:
        self.cache.finish(done := self.admit(self.key(*pages)), up_to=done.length)

    def insert_from(self, *pages: int) -> None:
        self.ticketed.tree.insert_from(self.key(*pages), self.ticketed.tickets)

    def evict_to(self, pages: int) -> None:
        self.ticketed.tree.evict_to(self.ticketed.tickets, pages * self.page_size, 1)

    def check(self) -> list[str]:
        return [*self.cache.check_integrity(), *self.ticketed.check()]

    def store(self, *, keep: bool = True) -> None:
        """Two inserts, of which the second begins as the first does."""
        n, inserts = 4 * self.page_size, []
        for at, last in enumerate((70, 71)):
            key = np.array(self.key(0, 1, 60, last), np.int32)
            inserts.append(Insert(key, self.lent[at * n : (at + 1) * n], keep=keep))
        self.cache.loans.store(self.borrower, inserts)

    def defer(self) -> None:
        """Something waits behind a fence that is not done."""
        self.cache.abort(self.cache.admit(self.key(50, 51)), fence=self.fence)

    def state(self) -> dict[str, Any]:
        """What anyone can tell of the cache: no shape of nodes, nothing of recency."""
        cache, cached = self.cache, set()
        paths: dict[int, tuple[int, ...]] = {0: ()}
        for node in cache.tree.walk():
            path = paths[node.parent_id]
            for token, slot in zip(node.codes.tolist(), node.slots.tolist(), strict=True):
                path = (*path, token)
                cached.add((node.namespace.salt, path, slot, node.lock_ref))
            paths[node.id] = path
        stats = cache.stats()
        return {
            "cached": cached,
            "sizes": (stats.free, stats.allocated, stats.evictable, stats.protected, stats.waiting),
            "sharers": cache.slots.ledger.sharers.tolist(),
            "rows": {r.id: (r.slots.tolist(), r.shared, r.capacity) for r in cache.live_requests},
            "pins": len(cache.loans.pins),
            "loans": cache.loans.borrower_of.tolist(),
            "epoch": cache.events.epoch,
            **self.ticketed.state(),
        }

    def drain(self) -> Iterator[str]:
        """What is not free after all has ended."""
        cache = self.cache
        self.fence.is_done = True
        for request in cache.live_requests:
            cache.finish(request, up_to=request.length)
        for pin in list(cache.loans.pins):
            cache.loans.unpin(pin)
        cache.loans.free_aside(cache.loans.set_aside(self.borrower, []))
        yield from cache.check_integrity()
        cache.reset()
        if cache.free_size != cache.num_slots:
            yield f"{cache.num_slots - cache.free_size} slots are lost"
        yield from cache.check_integrity()


Call = Callable[[Subject], object]

# What is done in one change: where it raises, everything is as before.
WHOLE: dict[str, Call] = {
    "match": lambda s: s.cache.match_prefix(s.key(0, 1, 2, 3, 5)),
    "match inside a node": lambda s: s.cache.match_prefix(s.key(2, 1, 2, 8)),
    "match in an unknown namespace": lambda s: s.cache.match_prefix([1], Namespace(salt="x")),
    "match_batch": lambda s: s.cache.match_batch([np.array(s.key(0, 1), np.int32), s.key(1, 2)]),
    "match_lengths": lambda s: s.cache.match_lengths([s.key(0, 1, 2, 3, 5), s.key(1, 1)]),
    "probe": lambda s: s.cache.probe(s.key(0, 1, 2)),
    "admit, which splits for its lock": lambda s: s.cache.admit(s.key(2, 1, 2, 8, 8)),
    "admit, which evicts": lambda s: s.cache.admit(s.key(*range(100, 135))),
    "admit, which evicts behind a fence": lambda s: s.cache.admit(s.key(*range(100, 135))),
    "admit what is longer than all that is free": lambda s: s.cache.admit(s.key(*range(99, 160))),
    "extend, which evicts": lambda s: s.cache.extend(s.live, s.key(*range(30))),
    "reserve": lambda s: s.cache.reserve(s.live, 3 * s.page_size),
    "publish, which adds": lambda s: s.cache.publish(s.live, s.live.length),
    "publish, which finds duplicates": lambda s: s.cache.publish(s.part, s.part.length),
    "abort": lambda s: s.cache.abort(s.live),
    "abort behind a fence": lambda s: s.cache.abort(s.live, fence=s.fence),
    "retract": lambda s: s.cache.retract(s.part),
    "rollback": lambda s: s.cache.rollback(s.live, 2 * s.page_size),
    "evict 1": lambda s: s.cache.evict(1),
    "evict 20 pages": lambda s: s.cache.evict(20 * s.page_size),
    "evict everything": lambda s: s.cache.evict(1000 * s.page_size),
    "evict behind a fence": lambda s: s.cache.evict(20 * s.page_size),
    "evict what continues a prefix": lambda s: s.cache.evict_below(s.key(0, 1, 2)),
    "evict below the middle of a node": lambda s: s.cache.evict_below(s.key(2, 1, 2)),
    "evict a namespace": lambda s: s.cache.evict_below([], Namespace(salt="other")),
    "evict content below a prefix": lambda s: s.cache.evict_below([]),
    "evict below a prefix behind a fence": lambda s: s.cache.evict_below(s.key(0, 1)),
    "insert_from": lambda s: s.insert_from(1, 2, 5),
    "insert_from, which splits": lambda s: s.insert_from(1, 7),
    "insert_from what is there": lambda s: s.insert_from(1, 2, 3),
    "evict_to": lambda s: s.evict_to(2),
    "evict_to everything": lambda s: s.evict_to(NUM_PAGES),
    "reset": lambda s: s.cache.reset(force=True),
    "pin": lambda s: s.cache.loans.pin(s.key(0, 1, 2, 3)),
    "unpin": lambda s: s.cache.loans.unpin(s.pinned),
    "lend, which evicts": lambda s: s.cache.loans.allocate(s.borrower, 20 * s.page_size),
    "give back what is lent": lambda s: s.cache.loans.give_back(s.borrower, s.lent[::-1]),
}
# What is done in steps: where it raises, the first of them may have been taken, and the same call
# goes on from there.
IN_STEPS: dict[str, Call] = {
    "finish": lambda s: s.cache.finish(s.live, up_to=s.live.length),
    "finish behind a fence": lambda s: s.cache.finish(s.part, up_to=s.part.length, fence=s.fence),
    "finish what is cached": lambda s: s.serve(0, 1, 2, 3),
    "finish in a new namespace": lambda s: s.cache.finish(
        done := s.admit(s.key(1, 2, 3), Namespace(salt="x")), up_to=done.length
    ),
    "finish with content": lambda s: s.cache.finish(
        done := s.admit(s.key(7, 7, 8), content=[(0, s.page_size, b"other")]), up_to=done.length
    ),
    "rollback, which cuts a page": lambda s: s.cache.rollback(s.part, s.page_size + 1),
    "fork": lambda s: s.cache.fork(s.part, 2),
    "fork what is private": lambda s: s.cache.fork(s.private, 2),
    "store": lambda s: s.store(),
}
BEHIND_A_FENCE = {
    "admit, which evicts behind a fence",
    "evict behind a fence",
    "evict below a prefix behind a fence",
}


def find_code(whose: str) -> None:
    """Tell the library where the code lies whose allocations are to fail."""
    importlib.import_module("radixkv.kernels._core")
    names = [r"/_core\.cpython"] if whose == "core" else [r"/libpython3", r"/bin/python3"]
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = next(ours for name in names if (ours := [at for at in lines if re.search(name, at)]))
    spans = [tuple(int(at, 16) for at in line.split()[0].split("-")) for line in found]
    begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
    _process.failing_code(ctypes.c_uint64(begin), ctypes.c_uint64(end))


def prepared(name: str, page_size: int, policy: str) -> Subject:
    subject = Subject(page_size, policy)
    if name in BEHIND_A_FENCE:
        subject.defer()
    return subject


def fail(call: Call, subject: Subject, nth: int) -> tuple[bool, BaseException | None]:
    """Whether the call came to its n-th allocation, and what it raised."""
    raised = None
    _process.failing_arm(ctypes.c_long(nth))
    try:
        call(subject)
    except BaseException as error:
        raised = error
    return bool(_process.failing_disarm()), raised


def refusal_faults(subject: Subject) -> Iterator[str]:
    """What is wrong with a cache that refuses service: it says why, to every call."""
    try:
        subject.cache.match_prefix([1])
    except errors.CacheCorruptedError as error:
        if subject.cache.violations[0] not in str(error):
            yield f"the refusal has another reason: {error}"
    else:
        yield "a cache with violations serves"


def faults_after(
    name: str, call: Call, subject: Subject, before: dict[str, Any], raised: BaseException | None
) -> Iterator[str]:
    """What is wrong with a cache in which an allocation of the core failed."""
    yield from subject.check()
    if raised is None:
        return
    if not isinstance(raised, errors.OutOfMemoryError):
        yield f"raised {raised!r}"
    after = subject.state()
    if name in WHOLE and after != before:
        yield f"changed {[key for key in after if after[key] != before[key]]}"
    try:
        call(subject)
    except Exception as error:
        yield f"raised {error!r} when it was called once more"
    yield from subject.check()


def judge(whose: str, name: str, call: Call, subject: Subject, nth: int) -> tuple[bool, list[str]]:
    """Whether there is an n-th allocation to fail, and what is wrong after it."""
    before = subject.state()
    has_failed, raised = fail(call, subject, nth)
    if not has_failed:
        return False, []
    if subject.cache.violations:
        return True, list(refusal_faults(subject))
    if whose == "core":
        faults = list(faults_after(name, call, subject, before, raised))
    else:
        faults = subject.check()
    return True, faults or list(subject.drain())


def main() -> int:
    whose, page_size, policies = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    find_code(whose)
    found: dict[str, Any] = {"failed": 0, "faults": [], "refused": {}}
    for policy in policies:
        for name, call in {**WHOLE, **IN_STEPS}.items():
            for nth in range(MOST_ALLOCATIONS):
                subject = prepared(name, page_size, policy)
                has_failed, faults = judge(whose, name, call, subject, nth)
                if not has_failed:
                    break
                found["failed"] += 1
                found["faults"] += [f"{policy}, {nth} of {name!r}: {line}" for line in faults]
                if subject.cache.violations:
                    found["refused"].setdefault(name, []).append(subject.cache.violations[0])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
