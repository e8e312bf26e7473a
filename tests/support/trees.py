"""What the tests of the tree share: the cores, all that a tree shows, trees spoken to in words."""

from itertools import count, islice
from typing import Any

from radixkv import DEFAULT, Namespace, RadixTree, new_tree
from radixkv.errors import CoreUnavailableError
from radixkv.tree import InsertResult, MatchResult, NodeInfo


def _available_cores() -> list[str]:
    try:
        new_tree(core="native")
    except CoreUnavailableError:
        return ["python"]
    return ["python", "native"]


CORES = _available_cores()


def snapshot(tree: RadixTree, *, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Every field of every node, as values that compare; without the fields named."""
    return [
        {
            name: value.tolist() if name in ("codes", "slots") else value
            for name, value in node._asdict().items()
            if name not in without
        }
        for node in tree.walk()
    ]


class Words:
    """A tree spoken to in words, so that a test reads the same at every page size.

    Each letter is one page of tokens.
    """

    def __init__(self, tree: RadixTree) -> None:
        self.tree = tree
        self.page_size = tree.page_size
        self._slots = count(tree.page_size)
        self._letter_of: dict[int, str] = {}

    def key(self, word: str) -> list[int]:
        return [ord(letter) * 100 + at for letter in word for at in range(self.page_size)]

    def spell(self, token_ids: Any) -> str:
        """The word that whole pages of tokens make."""
        word = "".join(chr(int(token) // 100) for token in token_ids[:: self.page_size])
        assert self.key(word) == list(token_ids)
        return word

    def fresh_slots(self, word: str) -> list[int]:
        slots = list(islice(self._slots, len(word) * self.page_size))
        self._letter_of |= {slot: word[at // self.page_size] for at, slot in enumerate(slots)}
        return slots

    def insert(self, word: str, namespace: Namespace = DEFAULT, **how: Any) -> InsertResult:
        return self.tree.insert(self.key(word), self.fresh_slots(word), namespace, **how)

    def match(self, word: str, namespace: Namespace = DEFAULT) -> MatchResult:
        return self.tree.match_prefix(self.key(word), namespace)

    def probe(self, word: str, namespace: Namespace = DEFAULT) -> str:
        """The beginning of `word` that is cached."""
        return word[: self.tree.probe(self.key(word), namespace) // self.page_size]

    def lock(self, word: str) -> Any:
        """A locked handle of exactly `word`, which must be cached."""
        match = self.match(word)
        assert match.length == len(self.key(word))
        self.tree.inc_lock_ref(match.handle)
        return match.handle

    def evict(self, letters: int) -> str:
        """Evict that many letters; which ones they were, in order."""
        return self.read(self.tree.evict(letters * self.page_size))

    def evict_one_by_one(self) -> str:
        """Evict everything, a letter at a time."""
        return "".join(iter(lambda: self.evict(1), ""))

    def read(self, slots: Any) -> str:
        """The letters whose tokens are in `slots`, which come in whole pages."""
        assert len(slots) % self.page_size == 0
        assert all(
            int(slots[at]) + 1 == int(slots[at + 1])
            for at in range(len(slots) - 1)
            if (at + 1) % self.page_size
        )
        return "".join(self._letter_of[int(slot)] for slot in slots[:: self.page_size])

    def sizes(self) -> tuple[int, int]:
        """Evictable and protected letters."""
        tree, page = self.tree, self.page_size
        assert tree.total_size == tree.evictable_size + tree.protected_size
        return tree.evictable_size // page, tree.protected_size // page

    def nodes(self) -> dict[str, NodeInfo]:
        """Every node by its whole word, as "abc/de" for a node that adds "de" below "abc"."""
        by_id: dict[int, str] = {0: ""}
        named = {}
        for node in self.tree.walk():
            above = by_id[node.parent_id]
            own = self.spell(node.codes)
            by_id[node.id] = above + own
            named[f"{above}/{own}"] = node
        return named
