"""Looking for what is cached, and counting it; takes nothing."""

from collections.abc import Sequence

from radixkv.arrays import Int32Array
from radixkv.cache.capacity import CapacityEstimator
from radixkv.cache.slots import Slots
from radixkv.cache.weights import Weights
from radixkv.tree import MatchResult, Namespace, TokenIds
from radixkv.tree.content import Content


class Lookups:
    """The look-ups of a cache, in the weights that are served: other weights match nothing.

    Those of admissions are counted by `Lifecycle`, with all else that it counts of them: a call
    more would be felt there. estimator: observes each look-up that is counted. Runs inside a
    transaction. Each raises InvalidNamespaceError for what is not a Namespace.
    """

    def __init__(
        self, slots: Slots, weights: Weights, estimator: CapacityEstimator | None = None
    ) -> None:
        self._tree, self._totals, self._weights = slots.tree, slots.totals, weights
        self.estimator = estimator

    def match(self, tokens: Int32Array, namespace: Namespace, content: Content) -> MatchResult:
        """`RadixTree.match_prefix`. tokens: (n,) int32, checked. Raises InvalidContentError."""
        is_present, present = self._weights.is_present(namespace), self._weights.present(namespace)
        visible, spans = (tokens, content) if is_present else (tokens[:0], ())
        match = self._tree.match_prefix(visible, present, content=spans, checked=True)
        self.observe(visible, present, spans)
        self._count(len(tokens), match.length)
        return match

    def match_batch(self, prompts: Sequence[Int32Array], namespace: Namespace) -> list[MatchResult]:
        """`match` of each prompt."""
        keys, present = self._visible(prompts, namespace)
        matches = self._tree.match_batch(keys, present, checked=True)
        self._count_batch(prompts, sum(match.length for match in matches))
        return matches

    def match_lengths(self, prompts: Sequence[Int32Array], namespace: Namespace) -> list[int]:
        """The lengths of `match_batch`."""
        keys, present = self._visible(prompts, namespace)
        lengths = self._tree.match_lengths(keys, present, checked=True)
        self._count_batch(prompts, sum(lengths))
        return lengths

    def _visible(
        self, prompts: Sequence[Int32Array], namespace: Namespace
    ) -> tuple[Sequence[Int32Array], Namespace]:
        """What is to be looked for of each prompt, and where; the estimator sees it."""
        is_present, present = self._weights.is_present(namespace), self._weights.present(namespace)
        if not is_present:
            return [key[:0] for key in prompts], present
        if self.estimator is not None:
            for prompt in prompts:
                self.observe(prompt, present, ())
        return prompts, present

    def probe(self, token_ids: TokenIds, namespace: Namespace, content: Content) -> int:
        """`RadixTree.probe`; counts nothing."""
        if not self._weights.is_present(namespace):
            return 0
        return self._tree.probe(token_ids, self._weights.present(namespace), content=content)

    def probe_batch(self, prompts: Sequence[TokenIds], namespace: Namespace) -> list[int]:
        """`probe` of each prompt."""
        if not self._weights.is_present(namespace):
            return [0 for _ in prompts]
        return self._tree.probe_batch(prompts, self._weights.present(namespace))

    def _count(self, length: int, hit: int) -> None:
        self._totals.lookup_tokens += length
        self._totals.hit_tokens += hit

    def _count_batch(self, prompts: Sequence[Int32Array], hit: int) -> None:
        self._count(sum(map(len, prompts)), hit)

    def observe(self, tokens: Int32Array, namespace: Namespace, content: Content) -> None:
        """Let the estimator, if there is one, see a look-up. namespace: as it is stored."""
        if self.estimator is not None:
            self.estimator.observe(tokens, namespace, content=content)
