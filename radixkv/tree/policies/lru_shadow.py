"""What LRU would hold in the place of another policy, and how far that one may differ.

Under LRU a tree of prefixes is a stack (`radixkv/lab/replay/curve.py`): a cache of so many tokens
holds those used last. So its content is known without a second cache: the tokens of the last uses,
as many as fit, whether they are still cached here or only ghosts. A cell counts the tokens last
used by one request; cells too small to matter are joined.

**The floor.** Tokens that LRU would hold and that are gone here are a debt: each may cost one hit.
The credit is what the policy brought more than LRU so far, plus one token in 4,096 of all prompts
and the first prompt. The debt stays below the credit; so the hits never fall further below LRU's
than those two. Of debts of this kind some part comes due and the rest expires, when LRU would have
lost the tokens too: a debt counts for the part that came due so far, all of it at first.

Integers throughout; `kernels/tree/policies/lru_shadow.cpp` computes the same.
"""

from bisect import bisect_right
from dataclasses import dataclass

_MOST_CELLS = 1024
_JOINED_CELLS = 256
_PROMPT_TOKENS_A_TOKEN = 4096  # the price of learning
_MOST_CREDIT = 4  # times the tokens that are cached: what was won long ago is not lost now


@dataclass(slots=True)
class _Cell:
    """Tokens last used at a time from `first` on; `gone`: so many of them are not cached here."""

    first: int
    tokens: int = 0
    gone: int = 0


class LruShadow:
    """The tokens that LRU would hold, by when they were last used.

    debt: of them, how many are gone here.
    """

    def __init__(self) -> None:
        self._cells = [_Cell(0)]
        self._lost = 0  # of the first cell: tokens that LRU has lost
        self._size = 0  # tokens that LRU holds
        self.debt = 0
        self._due = self._expired = 0
        self._credit = 0  # in parts of a token
        self._room = 0

    def begin(self, now: int) -> None:
        """A request begins at a time later than all before."""
        self._cells.append(_Cell(now))
        if len(self._cells) > _MOST_CELLS:
            self._join()

    def _join(self) -> None:
        most = sum(cell.tokens for cell in self._cells) // _JOINED_CELLS
        joined = self._cells[:2]  # of the first, a part is lost
        for cell in self._cells[2:]:
            if joined[-1].tokens + cell.tokens > most:
                joined.append(cell)
            else:
                joined[-1].tokens += cell.tokens
                joined[-1].gone += cell.gone
        self._cells = joined

    def add(self, tokens: int, price: int = 1) -> None:
        """So many tokens of the request; `price`: parts of a token that each adds to the credit."""
        self._cells[-1].tokens += tokens
        self._size += tokens
        self._credit += price * tokens

    def add_first(self, tokens: int) -> None:
        """The same for the first request, all of which is credit."""
        self.add(tokens, _PROMPT_TOKENS_A_TOKEN)

    def add_chunk(self, tokens: int) -> None:
        """The same for a part of a prompt: the credit comes with the whole."""
        self.add(tokens, 0)

    def use(self, used: int, tokens: int) -> None:
        """Tokens that are cached here are used again."""
        self._credit += _PROMPT_TOKENS_A_TOKEN * (tokens - self.take(used, tokens))

    def use_gone(self, used: int, tokens: int) -> None:
        """Tokens that are gone here are asked for."""
        if used >= self._cells[0].first:
            cell = self._cell(used)
            back = min(tokens, cell.gone)
            cell.gone -= back
            self.debt -= back
        due = self.take(used, tokens)
        self._due += due
        self._credit -= _PROMPT_TOKENS_A_TOKEN * due

    def take(self, used: int, tokens: int) -> int:
        """Tokens leave the place of their last use; returns how many LRU held there."""
        if used < self._cells[0].first:
            return 0
        cell = self._cell(used)
        lost = self._lost if cell is self._cells[0] else 0
        held = min(tokens, cell.tokens - lost)
        rest = min(tokens - held, lost)
        if lost:
            self._lost -= rest
        cell.tokens -= held + rest
        self._size -= held
        return held

    def lose(self, used: int, tokens: int) -> None:
        """Tokens are evicted here."""
        if self.holds(used):
            self._cell(used).gone += tokens
            self.debt += tokens

    def holds(self, used: int) -> bool:
        """Whether LRU still holds tokens used then."""
        return used >= self._cells[0].first

    def shrink(self, size: int) -> None:
        """LRU evicts until it holds `size` tokens."""
        self._room = size
        while self._size > size:
            first = self._cells[0]
            over, there = self._size - size, first.tokens - self._lost
            if there > over or len(self._cells) == 1:
                self._lost += min(over, there)
                self._size -= min(over, there)
                break
            self._size -= there
            self._lost = 0
            self.debt -= first.gone
            self._expired += first.gone
            del self._cells[0]
        if self._due + self._expired > 4 * size:
            self._due //= 2
            self._expired //= 2
        self._credit = min(self._credit, _MOST_CREDIT * size * _PROMPT_TOKENS_A_TOKEN)

    def may_lose(self, tokens: int) -> bool:
        """Whether the credit covers the debt and so many tokens more."""
        credit = max(self._credit, 0) // _PROMPT_TOKENS_A_TOKEN
        known = self._room + 1
        most = credit * (self._due + self._expired + known) // (self._due + known)
        return self.debt + tokens <= most

    def _cell(self, used: int) -> _Cell:
        return self._cells[bisect_right(self._cells, used, key=lambda cell: cell.first) - 1]
