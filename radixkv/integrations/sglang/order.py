"""The order of SGLang's scheduling policy dfs-weight."""

from collections.abc import Sequence

from radixkv.arrays import Int64Array, common_length


def depth_first(paths: Sequence[Int64Array]) -> list[int]:
    """The places of `paths`, depth first: the subtree that most of them go through comes first, and
    a path after those that go on from it.

    paths: what the tree holds for their tokens. No two places hold the same, so paths part where
    these numbers do.
    Cost: O(tokens of all paths) for each node at which they part.
    """
    order: list[int] = []
    # (paths that share their first `depth` numbers, depth); None: all of them end here.
    stack: list[tuple[list[int], int | None]] = [(list(range(len(paths))), 0)]
    while stack:
        group, depth = stack.pop()
        if depth is None or len(group) == 1:
            order += group
            continue
        ending = [i for i in group if len(paths[i]) == depth]
        stack.append((ending, None))
        branches: dict[int, list[int]] = {}
        for i in group:
            if len(paths[i]) > depth:
                branches.setdefault(int(paths[i][depth]), []).append(i)
        # The heaviest is taken first, so it comes last; of equals the first in `paths`.
        lightest_first = sorted(branches.values(), key=len, reverse=True)[::-1]
        stack += [
            (branch, depth + _shared([paths[i][depth:] for i in branch]))
            for branch in lightest_first
        ]
    return order


def _shared(paths: Sequence[Int64Array]) -> int:
    """How many numbers all of them begin with."""
    first, *others = paths
    return min((common_length(first, other) for other in others), default=len(first))
