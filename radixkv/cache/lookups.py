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

    estimator: observes each look-up that is counted. Runs inside a transaction.
    """

    def __init__(
        self, slots: Slots, weights: Weights, estimator: CapacityEstimator | None = None
    ) -> None:
        self._tree, self._totals, self._weights = slots.tree, slots.totals, weights
        self.estimator = estimator

    def match(self, tokens: Int32Array, namespace: Namespace, content: Content) -> MatchResult:
        """`RadixTree.match_prefix`."""
        is_present = self._weights.is_present(namespace)
        visible, spans = (tokens, content) if is_present else (tokens[:0], ())
        match = self._tree.match_prefix(visible, self._weights.present(namespace), content=spans)
        self.observe(tokens, namespace, content)
        self._totals.lookup_tokens += len(tokens)
        self._totals.hit_tokens += match.length
        return match

    def match_batch(self, prompts: Sequence[Int32Array], namespace: Namespace) -> list[MatchResult]:
        """`match` of each prompt."""
        keys = self._counted(prompts, namespace)
        matches = self._tree.match_batch(keys, self._weights.present(namespace))
        self._totals.hit_tokens += sum(match.length for match in matches)
        return matches

    def match_lengths(self, prompts: Sequence[Int32Array], namespace: Namespace) -> list[int]:
        """The lengths of `match_batch`."""
        keys = self._counted(prompts, namespace)
        lengths = self._tree.match_lengths(keys, self._weights.present(namespace))
        self._totals.hit_tokens += sum(lengths)
        return lengths

    def _counted(self, prompts: Sequence[Int32Array], namespace: Namespace) -> Sequence[Int32Array]:
        """What is to be looked for of each prompt."""
        self._totals.lookup_tokens += sum(map(len, prompts))
        if self.estimator is not None:
            for prompt in prompts:
                self.observe(prompt, namespace, ())
        return prompts if self._weights.is_present(namespace) else [key[:0] for key in prompts]

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

    def observe(self, tokens: Int32Array, namespace: Namespace, content: Content) -> None:
        """Let the estimator, if there is one, see a look-up."""
        if self.estimator is not None:
            self.estimator.observe(tokens, namespace, content=content)
