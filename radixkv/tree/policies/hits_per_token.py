"""The policy `hits_per_token`: evict what brings the fewest hits for the room it takes.

A long entry that is asked for as often as a short one brings as many hits and takes more room, so
it goes first. The worth of a leaf:

    worth = (hit_count + 1) / tokens

`hit_count` is how many whole inserts passed through the leaf; one more is expected, so that a leaf
that only chunks went through is worth something. `tokens` is its length now. The smallest worth
goes first, of equals the least recently used. Both cores divide in IEEE doubles, and so agree to
the last bit.

A split and a trim make a leaf shorter and so worth more: it gets another place. An entry that was
popular once is kept for good, as under `lfu`; `adaptive` forgets.
"""

from radixkv.tree.nodes import Node, OrderKey, Policy


class HitsPerToken(Policy):
    """Fewest hits a token first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return ((leaf.hit_count + 1) / len(leaf.slots), leaf.recency)
