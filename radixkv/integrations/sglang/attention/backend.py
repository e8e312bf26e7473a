"""SGLang's `AttentionBackend` with decode steps on a tree of what their requests share.

    RadixKVAttention   what SGLang calls: prompts, and all but decode, by its own backend
    └ TreeDecode       decode steps, as a tree, or flat by the same backend of SGLang's

In a CUDA graph a step cannot choose. SGLang captures each batch size under several labels, and asks
`TreeDecode.select` for the one to replay: "flat", or a kind of tree.
"""

from collections.abc import Iterable
from typing import Any

from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.attention.hybrid_attn_backend import HybridAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.model_executor.runner_utils.capture_mode import get_capture_attention_variant
from torch import Tensor

from radixkv.attention import ScoreOptions
from radixkv.attention.explain import Explanation
from radixkv.attention.shared_prefix.device_plan import Kind
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.sglang.attention.rows import HostRows
from radixkv.integrations.sglang.attention.step import FLAT_KERNELS, TreeStep

FLAT = "flat"


class RadixKVAttention(HybridAttnBackend):  # type: ignore[misc]
    """SGLang's own division of work between two backends; ours gets decode steps.

    It also gets to know which requests begin, so that their rows are on the host in time.
    """

    def __init__(self, runner: Any, flat: AttentionBackend, decode: "TreeDecode") -> None:
        super().__init__(runner, prefill_backend=flat, decode_backend=decode)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare a step that no graph was captured for."""
        if forward_batch.forward_mode.is_extend_without_speculative():
            self.decode_backend.begin(forward_batch)
        super().init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Prepare a step before its graph is captured, or replayed."""
        if forward_batch.forward_mode.is_extend_without_speculative() and not in_capture:
            self.decode_backend.begin(forward_batch)
        super().init_forward_metadata_out_graph(forward_batch, in_capture)

    def on_after_cuda_graph_warmup(self) -> None:
        """Between the runs that compile and the capture."""
        self.decode_backend.on_after_cuda_graph_warmup()


class TreeDecode(AttentionBackend):  # type: ignore[misc]
    """Decode steps.

    flat: SGLang's own backend. plain_layers: ids of the layers that a tree can run; all others are
    flat's in every step. num_layers: of all kinds.
    """

    needs_cpu_seq_lens = True

    def __init__(
        self,
        pool: Any,
        rows: HostRows,
        step: TreeStep,
        flat: AttentionBackend,
        plain_layers: Iterable[int],
        num_layers: int,
    ) -> None:
        super().__init__()
        self._pool, self._rows, self._step, self._flat = pool, rows, step, flat
        self._plain = frozenset(plain_layers)
        self._has_flat_layers = len(self._plain) < num_layers
        self._kinds = {FLAT: Kind()} | {_label(kind): kind for kind in step.kinds()}
        self._is_tree = False
        self._explanation: Explanation | None = None

    # ---- what SGLang captures ----

    @property
    def capture_labels(self) -> tuple[str, ...]:
        """Of the graphs of each batch size."""
        return tuple(self._kinds)

    def select(self, forward_batch: Any) -> str:
        """Plan a step; the label of the graph that runs it."""
        self._choose(forward_batch)
        return _label(self._step.chosen_kind) if self._is_tree else FLAT

    def explain(self) -> Explanation | None:
        """What was chosen for the last step, and why; None before the first."""
        return self._explanation

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Have room for the graphs."""
        self._step.reserve(max_bs)
        self._flat.init_cuda_graph_state(max_bs, max_num_tokens)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """The length of a row of padding."""
        value: int = self._flat.get_cuda_graph_seq_len_fill_value()
        return value

    # ---- the beginning of a step ----

    def begin(self, forward_batch: Any) -> None:
        """A step computes prompts: its requests decode later."""
        if forward_batch.rids is None or forward_batch.extend_prefix_lens_cpu is None:
            return  # what SGLang makes up to warm up, or to capture
        self._rows.begin(
            forward_batch.rids, forward_batch.req_pool_indices, forward_batch.extend_prefix_lens_cpu
        )

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Prepare a step that no graph is replayed for."""
        self._choose(forward_batch)
        if self._is_tree:
            self._step.send(forward_batch.req_pool_indices)
        if self._needs_flat:
            self._flat.init_forward_metadata(forward_batch)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Prepare the capture of a label, or the replay of the label that `select` gave."""
        if in_capture:
            self._imagine(forward_batch, get_capture_attention_variant())
        elif self._is_tree:
            self._step.send(forward_batch.req_pool_indices)
        if self._needs_flat:
            self._flat.init_forward_metadata_out_graph(forward_batch, in_capture)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """What SGLang's own backend has captured of its preparation."""
        if self._needs_flat:
            self._flat.init_forward_metadata_in_graph(forward_batch)

    def on_after_cuda_graph_warmup(self) -> None:
        """Between the runs that compile and the capture."""
        self._flat.on_after_cuda_graph_warmup()

    @property
    def _needs_flat(self) -> bool:
        return self._has_flat_layers or not self._is_tree

    def _choose(self, forward_batch: Any) -> None:
        rids, lengths = forward_batch.rids, forward_batch.seq_lens_cpu
        is_known = rids is not None and lengths is not None and len({*rids}) == len(rids)
        if not is_known or not forward_batch.forward_mode.is_decode():
            self._is_tree = False
            self._explanation = Explanation(
                "flat", "no decode step of known requests", FLAT_KERNELS
            )
            return
        # A padded step has more lengths than requests.
        rows = self._rows.of(rids, forward_batch.req_pool_indices, lengths[: len(rids)].tolist())
        self._explanation = self._step.choose(*rows)
        self._is_tree = self._explanation.choice == "tree"

    def _imagine(self, forward_batch: Any, label: str | None) -> None:
        """A step of that label, to capture what it launches: of requests that share nothing."""
        self._is_tree = label not in (None, FLAT)
        if self._is_tree:
            self._step.imagine(forward_batch.req_pool_indices, self._kinds[str(label)])

    # ---- layer by layer ----

    def forward_decode(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """One layer of a decode step; stores K and V first, if they are given."""
        if not self._is_tree or layer.layer_id not in self._plain:
            named = others if sinks is None else {"sinks": sinks, **others}
            output: Tensor = self._flat.forward_decode(
                q, k, v, layer, forward_batch, save_kv_cache, **named
            )
            return output
        _refuse(others)
        if k is not None and save_kv_cache:
            where = KVWriteLoc.for_layer(forward_batch, layer)
            self._pool.set_kv_buffer(layer, where, k, v, layer.k_scale, layer.v_scale)
        options = ScoreOptions(layer.scaling, None, layer.logit_cap or None, sinks)
        heads = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        keys, values = self._pool.get_kv_buffer(layer.layer_id)
        attended = self._step.run(heads, keys, values, options)
        return attended.view(len(heads), -1)

    def get_fused_kv_write_buffers(
        self, layer: Any, forward_batch: Any
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Where a kernel of SGLang's that also rotates writes K and V; None where it may not."""
        if self._is_tree:
            return None
        buffers: tuple[Tensor, Tensor, Tensor] | None = self._flat.get_fused_kv_write_buffers(
            layer, forward_batch
        )
        return buffers


def _refuse(others: dict[str, Any]) -> None:
    asked = sorted(
        name for name, value in others.items() if value is not None and value is not False
    )
    if asked:
        raise InvalidArgumentError(
            f"--attention-backend radixkv does not serve a model whose attention takes "
            f"{', '.join(asked)}; use --attention-backend fa3 or triton",
            refused=asked,
        )


def _label(kind: Kind) -> str:
    return f"tree-{kind.wide}{'-few' if kind.has_few_rows else ''}"
