"""The allocator against sets: free and held part the pool after every step."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radixkv.errors import InvalidArgumentError, SlotNotAllocatedError
from radixkv.memory import new_allocator
from tests.support.trees import CORES


class AllocatorMachine(RuleBasedStateMachine):
    @initialize(
        num_pages=st.integers(1, 8),
        page_size=st.sampled_from([1, 2, 4]),
        core=st.sampled_from(CORES),
    )
    def begin(self, num_pages: int, page_size: int, core: str) -> None:
        self.page_size = page_size
        self.pool = new_allocator(num_pages * page_size, page_size, core)
        self.everything = set(range(page_size, (num_pages + 1) * page_size))
        self.held: list[int] = []

    def free_count(self) -> int:
        return len(self.everything) - len(self.held)

    @rule(n=st.integers(0, 10))
    def allocate(self, n: int) -> None:
        if n % self.page_size:
            with pytest.raises(InvalidArgumentError):
                self.pool.allocate(n)
            return
        slots = self.pool.allocate(n)
        if n > self.free_count():
            assert slots is None
            return
        assert slots is not None
        given = slots.tolist()
        assert len(given) == n
        assert not set(given) & set(self.held)
        for at in range(0, n, self.page_size):
            page = given[at : at + self.page_size]
            assert page == list(range(page[0], page[0] + self.page_size))
            assert page[0] % self.page_size == 0
        self.held += given

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Some pages, their slots in any order."""
        pages = sorted({slot // self.page_size for slot in self.held})
        chosen = data.draw(st.lists(st.sampled_from(pages), unique=True) if pages else st.just([]))
        slots = [slot for slot in self.held if slot // self.page_size in chosen]
        self.pool.free(data.draw(st.permutations(slots)))
        self.held = [slot for slot in self.held if slot not in slots]

    @rule(data=st.data())
    def free_what_is_free(self, data: st.DataObject) -> None:
        """With pages that are held as well: none of them is freed."""
        free = sorted(self.everything - set(self.held))
        if free:
            page = data.draw(st.sampled_from(free)) // self.page_size
            slots = [page * self.page_size + at for at in range(self.page_size)]
            with pytest.raises(SlotNotAllocatedError):
                self.pool.free(self.held + slots)

    @invariant()
    def free_and_held_part_the_pool(self) -> None:
        free = self.pool.free_slots().tolist()
        assert len(free) == len(set(free)) == self.pool.free_size == self.free_count()
        assert set(free) | set(self.held) == self.everything
        assert min(free + self.held) == self.page_size


TestAllocator = AllocatorMachine.TestCase
