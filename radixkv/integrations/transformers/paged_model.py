"""A Hugging Face decoder that computes over a KV pool, with no edit to it.

    model(input_ids [1, n], position_ids, cache=PagedCache, radix=backend)
      └ each layer: PagedCache writes K/V at the planned slots, then the attention function runs
        the backend's attention over them

The new tokens of all requests are packed into one row; `AttentionBatch` says where each begins.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from radixkv.attention import AttentionBackend, AttentionBatch, ScoreOptions, get_backend
from radixkv.attention.scores import PLAIN
from radixkv.errors import InvalidArgumentError, RadixKVError
from radixkv.integrations.transformers.graphs import DecodeGraphs
from radixkv.integrations.transformers.latents import Absorbed
from radixkv.integrations.transformers.masks import asked_for, check_windows, no_mask
from radixkv.integrations.transformers.refusals import (
    IN_STEP,
    refuse_calls_of_others,
    refuse_features,
    refuse_model,
)
from radixkv.memory.kv_pool import MHATokenToKVPool, MLATokenToKVPool, TokenToKVPool

ATTENTION = "radixkv"
# Of bfloat16, relative, on the average.
ROUNDING = 0.02

# Models whose attention is ours while they are called.
_IN_USE: WeakKeyDictionary[PreTrainedModel, RLock] = WeakKeyDictionary()


class PagedCache(Cache):
    """Writes each layer's new keys and values at the slots that `backend` has planned.

    Parameters
    ----------
    backend
        Attention, which has planned the slots.
    """

    def __init__(self, backend: AttentionBackend) -> None:
        layers: list[Any] = [PagedLayer(backend, layer) for layer in range(backend.pool.num_layers)]
        super().__init__(layers=layers)


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache; holds no keys and values of its own."""

    def __init__(self, backend: AttentionBackend, layer: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._backend, self._layer = backend, layer

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the pool is there."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self._backend.write(self._layer, _packed(key_states), _packed(value_states))
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    radix: AttentionBackend | None = None,
    **features: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: `query` over the pool. `key`, `value` are there already."""
    refuse_calls_of_others()
    if radix is None:
        raise InvalidArgumentError(
            "the model must pass on to its attention what it is called with (radix=backend); "
            "got a layer that does not"
        )
    refuse_features(module, dropout=dropout or None, attention_mask=attention_mask, **features)
    layer: Any = module.layer_idx
    options = ScoreOptions(scaling, sliding_window, softcap, s_aux)
    absorbed = Absorbed(module, query, radix.pool) if radix.pool.is_latent else None
    if isinstance(radix, _Trial):
        radix.check_handed(key, value, absorbed)
    if absorbed is None:
        output = radix.run(_packed(query), layer, options)
    else:
        output = absorbed.values(radix.run(absorbed.query(_packed(query)), layer, options))
    return output.unsqueeze(0), None


AttentionInterface.register(ATTENTION, paged_attention)
AttentionMaskInterface.register(ATTENTION, no_mask)


class PagedModel:
    """Computes packed steps of `model` over `pool`; `model` stays usable on its own between steps.

    Parameters
    ----------
    model
        A causal language model of transformers.
    pool
        The K/V pool.
    backend
        A name of `get_backend`.
    max_batch
        Steps of one token each for up to so many requests are captured in CUDA graphs, where the
        backend can; None: never.
    max_context
        Of a request, for which the graphs have room.

    Raises
    ------
    InvalidArgumentError
        For a model with features that radixkv does not serve. They are found by a trial run of one
        token that touches nothing in the pool.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pool: TokenToKVPool,
        backend: str = "reference",
        *,
        max_batch: int | None = None,
        max_context: int = 1,
    ) -> None:
        parameters = inspect.signature(model.forward).parameters
        refuse_model(model, parameters)
        # transformers renamed it between 5.17 and 5.24.
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.model = model
        self.backend = get_backend(backend, pool)
        self._cache = PagedCache(self.backend)
        self._planned: AttentionBatch | None = None
        self._try_out()
        self._graphs: DecodeGraphs | None = None
        if max_batch and self.backend.captures and pool.device.type == "cuda":
            self._graphs = DecodeGraphs(self.backend, max_batch, max_context)

    def logits(self, token_ids: NDArray[Any], batch: AttentionBatch, keep: NDArray[Any]) -> Tensor:
        """Compute the new tokens of `batch`; float32 logits (len(keep), vocabulary).

        Parameters
        ----------
        token_ids
            (batch.num_tokens,), packed.
        batch
            The requests of the step.
        keep
            Which of them to give logits after.

        Returns
        -------
        Tensor
            (len(keep), vocabulary) float32.
        """
        if batch is not self._planned:
            self.plan(batch)
        self._planned = None
        if self._graphs and self._graphs.serves(batch):
            logits = self._graphs.logits(token_ids, batch, self._call)
            # An index comes from the host, and sending it would wait for the step.
            return logits if len(keep) == len(logits) else logits[keep]
        return self._forward(token_ids, batch, keep, self.backend, self._cache)

    def plan(self, batch: AttentionBatch) -> None:
        """Plan a step, so that `logits` of this very batch need not.

        Parameters
        ----------
        batch
            The requests of the step.
        """
        self._planned = None
        if self._graphs and self._graphs.serves(batch):
            self._graphs.plan(batch)
        else:
            self.backend.plan(batch)
        self._planned = batch

    def _forward(
        self,
        token_ids: NDArray[Any],
        batch: AttentionBatch,
        keep: NDArray[Any],
        backend: AttentionBackend,
        cache: PagedCache,
    ) -> Tensor:
        """What `backend` has planned for `batch`."""
        ids, positions, kept = (
            torch.tensor(x, dtype=torch.int64, device=self.model.device)
            for x in (token_ids, batch.positions, keep)
        )
        return self._call(ids, positions, kept, backend, cache)

    @torch.no_grad()
    def _call(
        self,
        token_ids: Tensor,
        positions: Tensor,
        keep: Tensor | None = None,
        backend: AttentionBackend | None = None,
        cache: PagedCache | None = None,
    ) -> Tensor:
        """The model on what `backend` has planned; all logits without `keep`."""
        with _attention_of(self.model):
            output: Any = self.model(
                input_ids=token_ids[None],
                position_ids=positions[None],
                logits_to_keep=0 if keep is None else keep,
                use_cache=True,
                radix=backend or self.backend,
                **{self._cache_name: cache or self._cache},
            )
        logits: Tensor = output.logits[0].float()
        return logits

    def _try_out(self) -> None:
        name, pool = type(self.model).__name__, self.backend.pool
        trial, first = _Trial(pool), np.zeros(1, np.int64)
        # The embedding of padding may be zeros, and K/V of zeros say nothing.
        token = first + (getattr(self.model.config.get_text_config(), "pad_token_id", None) == 0)
        first_slot = AttentionBatch([np.array([pool.page_size], np.int32)], [1])
        try:
            trial.plan(first_slot)
            with asked_for() as windows:
                self._forward(token, first_slot, first, trial, PagedCache(trial))
        except RadixKVError as error:
            raise InvalidArgumentError(f"{name} is not served: {error}") from error
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            # So models meet a cache without their state-space or convolution states.
            raise InvalidArgumentError(f"{name} does not run over a KV pool: {error}") from error
        if not trial.written == trial.ran == list(range(pool.num_layers)):
            raise InvalidArgumentError(
                f"{name} caches K/V in layers {trial.written} and attends through transformers' "
                f"AttentionInterface in layers {trial.ran}; radixkv serves models that do both "
                f"once in each of their layers ({pool.num_layers} here)"
            )
        check_windows(self.model.config.get_text_config(), windows, trial.windows)


class _Trial(AttentionBackend):
    """Notes which layers a model has, and leaves the pool alone."""

    def __init__(self, pool: TokenToKVPool) -> None:
        super().__init__(pool)
        self.written: list[int] = []
        self.ran: list[int] = []
        self.windows: list[int | None] = []
        self._stored: tuple[Tensor, Tensor]

    def plan(self, batch: AttentionBatch) -> None:
        self.batch = batch

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self.pool.check_rows(k, v, self._planned().num_tokens)
        self.written.append(layer)
        self._stored = k, v

    def check_handed(self, k: Tensor, v: Tensor, absorbed: Absorbed | None) -> None:
        """Raises for other K/V, (1, heads, n, dim), than were stored: only those are read again."""
        own = self._stored if absorbed is None else absorbed.expanded(*self._stored)
        for handed, stored in zip((k, v), own, strict=True):
            if handed.shape[1] != stored.shape[1] or not _equal(_packed(handed), stored, absorbed):
                raise InvalidArgumentError(
                    "a model must hand its attention the K/V that it stores; got "
                    f"{handed.shape[1]} heads of {stored.shape[1]}, or others"
                )

    def run(self, q: Tensor, layer: int, options: ScoreOptions = PLAIN) -> Tensor:
        self._check_query(q, options, self._planned().num_tokens)
        self.ran.append(layer)
        self.windows.append(options.window)
        return q.new_zeros((*q.shape[:2], self.pool.v_head_dim))


def _equal(handed: Tensor, stored: Tensor, absorbed: Absorbed | None) -> bool:
    if absorbed is None:
        return torch.equal(handed, stored)
    # A product of matrices, which need not be rounded alike.
    return bool((handed - stored).norm() <= ROUNDING * stored.norm())


def pool_for(
    model: PreTrainedModel,
    num_slots: int,
    *,
    page_size: int = 1,
    dtype: torch.dtype | str | None = None,
) -> TokenToKVPool:
    """A KV pool of `model`'s shape on its device, in its dtype if None is given: of latents where
    the model has latent attention.

    Parameters
    ----------
    model
        A causal language model of transformers.
    num_slots
        Slots of the pool, a multiple of the page size.
    page_size
        Tokens a page, 1 or more.
    dtype
        Of K and V; None: the model's.

    Returns
    -------
    TokenToKVPool
        Zeros, on the model's device.
    """
    config: Any = model.config.get_text_config()
    dtype, device, layers = dtype or model.dtype, model.device, config.num_hidden_layers
    rank, rope = (getattr(config, name, None) for name in ("kv_lora_rank", "qk_rope_head_dim"))
    if rank and rope:
        return MLATokenToKVPool(num_slots, layers, rank, rope, dtype, device, page_size=page_size)
    heads = getattr(config, "num_attention_heads", None)
    if not isinstance(heads, int):
        raise InvalidArgumentError(
            f"{type(model).__name__} is not served: its configuration must have "
            f"num_attention_heads, one number for all layers; got {heads}"
        )
    return MHATokenToKVPool(
        num_slots,
        layers,
        getattr(config, "num_key_value_heads", None) or heads,
        getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype,
        device,
        page_size=page_size,
    )


@contextmanager
def _attention_of(model: PreTrainedModel) -> Iterator[None]:
    # Another thread's step of the same model would end with this one's attention, or start with it.
    with _IN_USE.setdefault(model, RLock()):
        before = model.config._attn_implementation
        model.set_attn_implementation(ATTENTION)
        token = IN_STEP.set(True)
        try:
            yield
        finally:
            IN_STEP.reset(token)
            model.set_attn_implementation(before)


def _packed(states: Tensor) -> Tensor:
    """(1, heads, n, dim) as (n, heads, dim)."""
    if len(states) != 1:
        raise InvalidArgumentError(f"a packed batch must be one row; got {len(states)}")
    return states[0].transpose(0, 1)
