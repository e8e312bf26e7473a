"""When cached tokens will be used again, learnt from when they were used before.

Times are milliseconds on a clock that the host of the cache gives; a request without a time takes
one `STEP`. Ages are counted in steps. Integers throughout, so that both cores agree to the
last bit; `kernels/tree/policies/reuse_model.cpp` computes the same.
"""

from bisect import bisect_right

KINDS = 18
AGES = 88
STEP = 64
_ONE = 1 << 20
_MOST_CELLS = 512
_PARTS = 4  # a cell spans at most this part of its age


def age_group(age: int) -> int:
    """Every age up to 4 steps is a group of its own; then there are four for each doubling."""
    age //= STEP
    if age < 4:
        return max(age - 1, 0)
    shift = age.bit_length() - 3
    return min(4 * shift + (age >> shift) - 1, AGES - 1)


def _ages_of(group: int) -> tuple[int, int]:
    """The first age of a group, and how many ages it has."""
    if group < 3:
        return group + 1, 1
    octave, part = divmod(group - 3, 4)
    return part + 4 << octave, 1 << octave


_FIRST_AGE, _AGES_IN = zip(*map(_ages_of, range(AGES)), strict=True)
# The chances assumed before anything is known: the longer unused, the less likely.
_GUESS = [
    ages * _ONE // (10 * (first + 8) + 5 * ages)
    for first, ages in zip(_FIRST_AGE, _AGES_IN, strict=True)
]


class ReuseModel:
    """Tokens wait from one use to the next: how many of each kind waited how long.

    now: the time of the last request. uses: how many requests there were. Old times share a cell:
    it spans at most a quarter of its age, so that there are few of them.
    """

    def __init__(self) -> None:
        self.now = self.uses = 0
        self._learnt = self._stale_at = 0
        self._firsts = [0]  # of each cell: its first time, and tokens that wait by kind
        self._waiting = [[0] * KINDS]
        self._reused = [[0] * AGES for _ in range(KINDS)]
        self._given_up = [[0] * AGES for _ in range(KINDS)]
        self._worth = [[0] * AGES for _ in range(KINDS)]

    def begin(self, now: int) -> None:
        """A request begins, at a time later than all before."""
        assert now > self.now
        self.uses += 1
        self.now = now
        self._firsts.append(now)
        self._waiting.append([0] * KINDS)
        if len(self._firsts) > _MOST_CELLS:
            self._join()

    def _join(self) -> None:
        ends = [*self._firsts[1:], self.now + 1]
        firsts, waiting = self._firsts[:1], self._waiting[:1]
        for first, end, counts in zip(self._firsts[1:], ends[1:], self._waiting[1:], strict=True):
            if _PARTS * (end - firsts[-1]) <= self.now + 1 - end:
                waiting[-1] = [one + more for one, more in zip(waiting[-1], counts, strict=True)]
            else:
                firsts.append(first)
                waiting.append(counts)
        self._firsts, self._waiting = firsts, waiting

    def add(self, used: int, kind: int, count: int) -> None:
        """`count` tokens wait since the time `used`."""
        self._waiting[bisect_right(self._firsts, used) - 1][kind] += count

    def remove(self, used: int, kind: int, count: int) -> None:
        """`count` tokens stop waiting."""
        self.add(used, kind, -count)

    def reuse(self, used: int, kind: int, count: int, age: int) -> None:
        """They were used again, `age` later."""
        self.remove(used, kind, count)
        self._reused[kind][age_group(age)] += count
        self._learnt += count

    def give_up(self, used: int, kind: int, count: int) -> None:
        """They are not watched any more."""
        self.remove(used, kind, count)
        self._given_up[kind][age_group(self.now - used)] += count
        self._learnt += count

    def worth(self, kind: int, used: int) -> int:
        """What keeping a token is expected to bring for each step that it stays."""
        return self._worth[kind][age_group(self.now + STEP - used)]

    @property
    def waiting_tokens(self) -> int:
        """All tokens that wait."""
        return sum(map(sum, self._waiting))

    def refresh(self, size: int) -> None:
        """Bring `worth` up to date, for a cache of `size` tokens."""
        if self.uses < self._stale_at:
            return
        self._stale_at = self.uses + 1 + min(self.uses // 16, 31)
        if self._learnt > 64 * size:
            self._forget_half()
        risk, doubt = self._at_risk(), size // 40 + 1
        common = _chances(
            [sum(column) for column in zip(*self._reused, strict=True)],
            [sum(column) for column in zip(*risk, strict=True)],
            _GUESS,
            doubt,
        )
        of_unknown = _rates(common)
        for kind in range(KINDS):
            known = risk[kind][0] > 0
            chances = _chances(self._reused[kind], risk[kind], common, doubt) if known else []
            self._worth[kind] = _rates(chances) if known else of_unknown

    def _forget_half(self) -> None:
        self._learnt //= 2
        for table in (self._reused, self._given_up):
            table[:] = [[count // 2 for count in row] for row in table]

    def _at_risk(self) -> list[list[int]]:
        """How many tokens came to each age without being used before it."""
        risk = [
            [reused + given_up for reused, given_up in zip(*rows, strict=True)]
            for rows in zip(self._reused, self._given_up, strict=True)
        ]
        lasts = [first - 1 for first in self._firsts[1:]] + [self.now]
        for last, waiting in zip(lasts, self._waiting, strict=True):
            age = self.now - last
            if age:
                for kind, count in enumerate(waiting):
                    risk[kind][age_group(age)] += count
        for row in risk:
            for group in range(AGES - 1, 0, -1):
                row[group - 1] += row[group]
        return risk


def _chances(reused: list[int], risk: list[int], expected: list[int], doubt: int) -> list[int]:
    """The chance to be used in each group of ages; `expected` weighs as much as `doubt` tokens."""
    return [
        (hits * _ONE + chance * doubt) // (all_ + doubt)
        for hits, all_, chance in zip(reused, risk, expected, strict=True)
    ]


def _rates(chances: list[int]) -> list[int]:
    """The best rate of uses a step that waiting can reach from each group on.

    One may give up after any group: a stretch goes on while what comes next is better.
    """
    rates = [0] * AGES
    ahead: list[tuple[int, int, int, int]] = []
    for group in range(AGES - 1, -1, -1):
        gain = chances[group]
        time, left = _AGES_IN[group] * (_ONE - gain // 2), _ONE - gain
        rate = (gain << 36) // time
        while ahead and ahead[-1][3] > rate:
            next_gain, next_time, next_left, _ = ahead.pop()
            gain += left * next_gain // _ONE
            time += left * next_time // _ONE
            left = left * next_left // _ONE
            rate = (gain << 36) // time
        ahead.append((gain, time, left, rate))
        rates[group] = rate
    return rates
