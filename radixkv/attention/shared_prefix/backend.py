"""Steps whose requests share prefixes: each shared run of slots is read once for all under it.

plan(batch, step) -> flat.plan(batch, step)          what a window, or other heads, run by
                  -> kept plan: TreePlan, Cost       on the host, kept up from step to step
                  -> choice
                  -> DevicePlan.send                 where the choice is the tree
"""

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, cast

from torch import Tensor

from radixkv.arguments import at_least
from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep, check_scales
from radixkv.attention.explain import Explanation
from radixkv.attention.scores import ScoreOptions
from radixkv.attention.shared_prefix.device_plan import DevicePlan
from radixkv.attention.shared_prefix.kept_plan import KeptPlan
from radixkv.attention.shared_prefix.kernels import TileKernels
from radixkv.attention.triton import TritonKernels
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool

if TYPE_CHECKING:
    from radixkv.attention.fa3 import FA3Kernels
    from radixkv.attention.flashmla import FlashMLAKernels

# Of one request. Prompts are bound by arithmetic, and there is little to gain.
MAX_QUERY = 16
# From so many query heads on, latents are bound by arithmetic, which a tree does not save.
LATENT_HEADS = 64


def tree_attention(
    pool: TokenToKVPool,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    mode: str = "auto",
    q_heads: int | None = None,
    core: str | None = None,
) -> DeviceAttention:
    """As the flat backend, fa3 where it runs, else triton; steps of few tokens as a tree where that
    pays.

    A step can be a tree when each request has at most MAX_QUERY new tokens (decode, drafts that are
    verified, the end of a prompt), and a layer when no window hides what is shared. `explain()`
    says what was chosen and why.
    k_scale, v_scale: what K and V are divided by when they are stored (fp8 only). mode: "auto", or
    "tree" or "flat" to take that always (where it is possible). q_heads: of the queries; if None,
    learnt from the first step, which is flat then. core: of the planner, see `new_planner`.
    Raises InvalidArgumentError, CoreUnavailableError.
    """
    return DeviceAttention(pool, SharedPrefixKernels(pool, k_scale, v_scale, mode, q_heads, core))


class SharedPrefixKernels:
    """Runs a step as a tree by `TileKernels`, or flat by the kernels of a flat backend."""

    def __init__(
        self,
        pool: TokenToKVPool,
        k_scale: float,
        v_scale: float,
        mode: str,
        q_heads: int | None,
        core: str | None,
    ) -> None:
        check_scales(pool, k_scale=k_scale, v_scale=v_scale)
        if mode not in ("auto", "tree", "flat"):
            raise InvalidArgumentError(f"mode must be auto, tree or flat; got {mode!r}", mode=mode)
        self.pool, self.k_scale, self.v_scale, self.mode = pool, k_scale, v_scale, mode
        self.flat = flat_kernels(pool, k_scale, v_scale)
        self._tiles = TileKernels(pool, k_scale, v_scale)
        self._kept = KeptPlan(pool, core)
        self._on_device = DevicePlan(pool)
        self._heads = self._reserved = 0
        self._has_flat_layers = False
        if q_heads is not None:
            self._learn(_checked_heads(q_heads, pool))
        self._is_tree = self._may_be_tree = False

    @property
    def key(self) -> Hashable:
        return self._tree_key(self._on_device.key) if self._is_tree else self.flat.key

    def _tree_key(self, key: Hashable) -> Hashable:
        # Layers with a window, or with other heads than were planned for, stay flat.
        return key, self.flat.key if self._has_flat_layers else None

    def all_keys(self) -> list[Hashable]:
        if not self._may_be_tree:
            return [self.flat.key]
        return [self.flat.key, *map(self._tree_key, self._on_device.all_keys())]

    @contextmanager
    def as_if(self, key: Hashable) -> Iterator[None]:
        before, self._is_tree = self._is_tree, key != self.flat.key
        with ExitStack() as all_:
            all_.enter_context(self.flat.as_if(self.flat.key))
            if self._is_tree:
                all_.enter_context(self._on_device.as_if(cast(tuple[Hashable, Hashable], key)[0]))
            try:
                yield
            finally:
                self._is_tree = before

    def reserve(self, requests: int) -> None:
        self._reserved = max(self._reserved, requests)
        self.flat.reserve(requests)
        if self._heads:
            self._on_device.reserve(self._reserved, self._heads)

    def plan(self, batch: AttentionBatch, step: DeviceStep) -> Explanation:
        self._step = step
        self.flat.plan(batch, step)
        explanation = self._chosen(batch)
        self._is_tree = explanation.choice == "tree"
        if self._may_be_tree:
            self._on_device.send(self._kept.plan, self._kept.shape, step.tokens)
        return explanation

    def _chosen(self, batch: AttentionBatch) -> Explanation:
        never = self._never_a_tree(batch)
        self._may_be_tree = not never
        if never:
            self._kept.forget()
            return Explanation("flat", never, self.flat.name)
        self._kept.follow(batch)
        return self._kept.explained(self.mode, tree=self._serving(), flat=self.flat.name)

    def _never_a_tree(self, batch: AttentionBatch) -> str:
        """Why the step is flat whatever its rows share; empty if it may be a tree."""
        if self.mode == "flat":
            return "the mode is flat"
        if not self._heads:
            return "the heads of the queries are not known yet"
        if self.mode == "auto" and self.pool.is_latent and self._heads >= LATENT_HEADS:
            return "the heads of one token fill a tile, and nothing is left to share"
        longest = max(batch.query_lens)
        return f"a request has more than {MAX_QUERY} new tokens" if longest > MAX_QUERY else ""

    def _serving(self) -> str:
        return self._tiles.serving(self._heads // self.pool.kv_heads)

    def run(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        is_planned = self._is_tree and q.shape[1] == self._on_device.heads
        if is_planned and options.window is None:
            return self._run_tree(q.contiguous(), layer, options)
        self._has_flat_layers |= self._is_tree
        if q.shape[1] != self._heads:
            self._learn(q.shape[1])
        return self.flat.run(q, layer, options)

    def _learn(self, heads: int) -> None:
        self._heads = heads
        self._kept.reshape(self._tiles.shape(heads))
        if self._reserved:
            self._on_device.reserve(self._reserved, heads)

    def _run_tree(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        inputs = q, self.pool.k(layer), self.pool.v(layer), self._step.page_table
        return self._tiles.run(inputs, self._on_device, options)


def _checked_heads(q_heads: int, pool: TokenToKVPool) -> int:
    if at_least(1, q_heads=q_heads) % pool.kv_heads:
        raise InvalidArgumentError(
            f"q_heads must be a multiple of the pool's {pool.kv_heads} KV heads; got {q_heads}",
            q_heads=q_heads,
        )
    return q_heads


def flat_kernels(
    pool: TokenToKVPool, k_scale: float, v_scale: float
) -> "FlashMLAKernels | FA3Kernels | TritonKernels":
    """The fastest that run and serve `pool`: those of flashmla, of fa3, or Triton's."""
    # Imported here: what they need is not everywhere.
    from radixkv.attention.fa3 import FA3Kernels, check_card
    from radixkv.attention.flashmla import FlashMLAKernels

    for kernels in (FlashMLAKernels, FA3Kernels):
        with suppress(BackendUnavailableError, ImportError, InvalidArgumentError):
            check_card()
            return kernels(pool, k_scale, v_scale)
    return TritonKernels(pool, k_scale, v_scale)
