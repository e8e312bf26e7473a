"""Workers that come and go one at a time: the arrays that look-ups go by."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from radixkv.router import Router
from radixkv.router.column import Column
from radixkv.router.worker_rows import WorkerRows


def random_mirror(rng: random.Random) -> Any:
    return SimpleNamespace(
        holder=rng.randrange(100),
        page_size=rng.choice([1, 1, 1, 4]),
        is_stale=rng.random() < 0.5,
        updated_at=rng.random(),
    )


def test_each_array_has_an_item_for_each_worker():
    """The same as one made anew from all mirrors, after whatever happened."""
    rng = random.Random(3)
    rows, mirrors = WorkerRows(), dict[str, Any]()
    for number in range(400):
        worker = rng.choice([*mirrors, "first"]) if rng.random() < 0.5 else f"w{number}"
        if worker not in mirrors:
            mirrors[worker] = random_mirror(rng)
            rows.add(worker, mirrors[worker])
        elif rng.random() < 0.4:
            del mirrors[worker]
            rows.remove(worker)
        else:
            vars(mirrors[worker]).update(vars(random_mirror(rng)))
            rows.show(worker, mirrors[worker])
        kept = mirrors.values()
        assert rows.names == tuple(mirrors)
        assert rows.holders.tolist() == [each.holder for each in kept]
        assert rows.is_stale.tolist() == [each.is_stale for each in kept]
        assert rows.updated_at.tolist() == [each.updated_at for each in kept]
        sizes = [each.page_size for each in kept]
        expected = sizes if any(size > 1 for size in sizes) else None
        assert (None if rows.page_sizes is None else rows.page_sizes.tolist()) == expected
    assert len(mirrors) > 50


def test_a_column_grows_without_a_copy_each_time():
    column, rooms = Column(np.int64), set()
    for item in range(1_000):
        column.append(item)
        rooms.add(id(column.items.base))
    assert column.items.tolist() == list(range(1_000))
    assert len(rooms) <= 10


def test_loads_stay_with_their_workers():
    router = Router("round-robin")
    for worker in "abcde":
        router.add_worker(worker)
    picks = [router.pick([at]) for at in range(10)]
    picks += [router.pick([9], loads={"d": 0.0}) for _ in range(3)]
    router.remove_worker("b")
    router.add_worker("f")
    loads = {each.view.worker: each.load for each in router.workers()}
    assert loads == {"a": 2, "c": 2, "d": 5, "e": 2, "f": 0}
    for pick in picks:
        router.finish(pick)
    assert {each.load for each in router.workers()} == {0}
