"""Decode steps of SGLang's on a tree, over a stand-in for its pool and its batches."""

import importlib
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from radixkv.integrations.sglang.attention.rows import HostRows
from radixkv.integrations.sglang.attention.step import Pool, TreeStep
from tests.support import sglang_attention
from tests.support.sglang_attention import ForwardBatch, ForwardMode, RadixAttention

HEADS, KV_HEADS, DIM, WIDTH, PREFIX = 8, 2, 64, 512, 96


@pytest.fixture(autouse=True)
def sglang():
    before = {*sys.modules}
    sglang_attention.install()
    yield
    for name in {*sys.modules} - before:
        if name.startswith(("sglang", "radixkv.integrations.sglang")):
            del sys.modules[name]


class Served:
    """Requests 1 to 7, of which each `together` share PREFIX slots, under our backend."""

    def __init__(self, device, mode="tree", page_size=1, windows=(-1, -1), together=2):
        backend = importlib.import_module("radixkv.integrations.sglang.attention.backend")
        self.device = device
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        pages = torch.randperm(8 * WIDTH // page_size, device=device) + 1
        slots = pages[:, None] * page_size + torch.arange(page_size, device=device)
        rows = slots.view(8, WIDTH).to(torch.int32)
        for at in range(1, 8):
            rows[at, :PREFIX] = rows[at - (at - 1) % together, :PREFIX]
        self.layers = [
            RadixAttention(HEADS, DIM, 0.1, KV_HEADS, *each) for each in enumerate(windows)
        ]
        self.runner = sglang_attention.new_runner(
            rows, self.layers, page_size=page_size, dtype=dtype
        )
        self.flat = sglang_attention.FlatBackend(self.runner)
        plain = [at for at, window in enumerate(windows) if window < 0]
        pool = Pool(KV_HEADS, DIM, dtype, rows.device, page_size)
        decode = backend.TreeDecode(
            self.runner.token_to_kv_pool,
            HostRows(rows, page_size),
            TreeStep(pool, HEADS, rows, mode),
            self.flat,
            plain,
            len(windows),
        )
        self.backend = backend.RadixKVAttention(self.runner, self.flat, decode)

    @property
    def rows(self):
        return self.runner.req_to_token_pool.req_to_token

    def begin(self, places):
        extend = ForwardBatch(ForwardMode.EXTEND, len(places), self._on_device(places))
        extend.rids = [*map(str, places)]
        extend.extend_prefix_lens_cpu = [PREFIX] * len(places)
        self.backend.init_forward_metadata(extend)

    def decode(self, places, lengths, pad=0):
        """A step, and what SGLang makes of it to replay a graph: with padding, without names."""
        at, lens = self._on_device(places), torch.tensor(lengths)
        batch = ForwardBatch(ForwardMode.DECODE, len(places), at, lens)
        batch.rids = [*map(str, places)]
        batch.out_cache_loc = self.rows[at, lens.to(self.device) - 1].long()
        padded = self._on_device([*places, *[0] * pad])
        view = ForwardBatch(ForwardMode.DECODE, len(padded), padded)
        return batch, view

    def _on_device(self, places):
        return torch.tensor(places, device=self.device)

    def inputs(self, count, seed=0):
        shape = (3, count, 64 * HEADS)
        made = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
        q, k, v = made.to(self.device, self.runner.kv_cache_dtype)
        k, v = (each[:, : KV_HEADS * DIM].reshape(-1, KV_HEADS, DIM) for each in (k, v))
        return q, k, v

    def error(self, layer, batch, count):
        """Of what the backend gives for a layer, against SGLang's own."""
        q, k, v = self.inputs(count)
        expected = self.flat.forward_decode(q, k, v, self.layers[layer], batch)
        given = self.backend.forward(q, k, v, self.layers[layer], batch)
        return float((given - expected).float().norm() / expected.float().norm())


def tolerance(device):
    return 0.01 if device == "cuda" else 1e-5


@pytest.mark.parametrize("page_size", [1, 4])
def test_steps_that_no_graph_was_captured_for(device, page_size):
    served = Served(device, page_size=page_size)
    places = [1, 2, 3, 4, 5]
    served.begin(places)
    for step in range(5):
        lengths = [140 + step, 170 + step, 300 + step, 97 + step, 211 + step]
        batch, _ = served.decode(places, lengths)
        served.backend.init_forward_metadata(batch)
        assert served.error(0, batch, len(places)) < tolerance(device)
        assert served.backend.decode_backend.explain().choice == "tree"
    assert served.backend.decode_backend.explain().distinct_slots < sum(lengths)
    assert served.flat.steps == [ForwardMode.EXTEND]


def test_requests_that_come_and_go(device):
    served, rng = Served(device), np.random.default_rng(0)
    lengths = dict.fromkeys(range(1, 7), 0)
    running = []
    for _ in range(20 if device == "cuda" else 6):
        if len(running) > 2:
            running.pop(int(rng.integers(len(running))))
        new = [at for at in lengths if at not in running][:2]
        served.begin(new)
        lengths |= {at: int(rng.integers(PREFIX + 2, 200)) for at in new}
        running = [*new, *running]
        batch, _ = served.decode(running, [lengths[at] for at in running])
        served.backend.init_forward_metadata(batch)
        assert served.error(1, batch, len(running)) < tolerance(device)
        for at in running:
            lengths[at] += 1


def test_a_layer_with_a_window_is_sglangs_own_in_a_step_of_a_tree(device):
    served = Served(device, windows=(-1, 15))
    served.begin([1, 2])
    batch, _ = served.decode([1, 2], [150, 160])
    served.backend.init_forward_metadata(batch)
    assert served.flat.steps == [ForwardMode.EXTEND, ForwardMode.DECODE]
    assert max(served.error(layer, batch, 2) for layer in (0, 1)) < tolerance(device)


def test_what_shares_nothing_is_sglangs_own(device):
    served = Served(device, mode="flat")
    served.begin([1, 2])
    batch, _ = served.decode([1, 2], [150, 160])
    assert served.backend.decode_backend.select(batch) == "flat"
    served.backend.init_forward_metadata(batch)
    assert served.flat.steps == [ForwardMode.EXTEND, ForwardMode.DECODE]
    assert served.error(0, batch, 2) == 0


@pytest.mark.parametrize(
    "unlike",
    [{"forward_mode": ForwardMode.IDLE}, {"rids": None}, {"rids": ["a", "a"]}],
    ids=["idle", "nameless", "named alike"],
)
def test_steps_that_cannot_be_planned_are_sglangs_own(device, unlike):
    served = Served(device)
    batch, _ = served.decode([1, 2], [150, 160])
    vars(batch).update(unlike)
    served.backend.init_forward_metadata(batch)
    assert served.flat.steps == [batch.forward_mode]


def test_softcap_and_sinks(device):
    served = Served(device)
    served.layers[0].logit_cap = 3.0
    served.begin([1, 2])
    batch, _ = served.decode([1, 2], [150, 160])
    served.backend.init_forward_metadata(batch)
    assert served.error(0, batch, 2) < tolerance(device)
    q, k, v = served.inputs(2)
    sinks = {"sinks": torch.ones(HEADS, device=device)}
    given = served.backend.forward(q, k, v, served.layers[1], batch, **sinks)
    expected = served.flat.forward_decode(q, k, v, served.layers[1], batch, **sinks)
    assert float((given - expected).float().norm() / expected.float().norm()) < tolerance(device)


def test_what_a_tree_cannot_compute_is_refused_by_name(device):
    from radixkv.errors import InvalidArgumentError

    served = Served(device)
    batch, _ = served.decode([1, 2], [150, 160])
    served.backend.init_forward_metadata(batch)
    with pytest.raises(InvalidArgumentError, match="whose attention takes score_mod"):
        served.backend.forward(*served.inputs(2), served.layers[0], batch, score_mod=len)


@pytest.mark.parametrize("together", [2, 7])
def test_one_capture_of_each_label_serves_every_later_plan(device, monkeypatch, together):
    """As SGLang captures and replays; without a card each replay is a run."""
    served, rng, size = Served(device, together=together), np.random.default_rng(1), 8
    decode = served.backend.decode_backend
    decode.init_cuda_graph_state(size, size)
    q = served.inputs(size)[0]
    graphs, replayed = {}, set()
    for label in decode.capture_labels:
        monkeypatch.setattr(sglang_attention.CaptureMode, "label", label)
        view = ForwardBatch(ForwardMode.DECODE, size, torch.zeros(size, dtype=int, device=device))
        view.seq_lens_cpu = torch.ones(size, dtype=int)
        served.backend.init_forward_metadata_out_graph(view, in_capture=True)
        if label != "flat":
            graphs[label] = _captured(served, view, q)
    for _ in range(20 if device == "cuda" else 3):
        places = [int(at) for at in rng.permutation(np.arange(1, 8))[: rng.integers(5, 8)]]
        served.begin(places)
        lengths = [int(n) for n in rng.integers(PREFIX + 2, 400, len(places))]
        for _ in range(2):
            batch, view = served.decode(places, lengths, pad=size - len(places))
            label = decode.select(batch)
            replayed.add(label)
            served.backend.init_forward_metadata_out_graph(view)
            given = graphs[label]()[: len(places)]
            expected = served.flat.forward_decode(
                q[: len(places)], None, None, served.layers[0], batch
            )
            error = (given - expected).float().norm() / expected.float().norm()
            assert float(error) < tolerance(device)
            lengths = [n + 1 for n in lengths]
    # On a card the cost model may take another way to cut.
    assert device == "cuda" or (together == 7) == any(label > "tree-0" for label in replayed)


def _captured(served, view, q):
    """Replays what the first layer launches; K and V are there."""

    def run():
        return served.backend.forward(q, None, None, served.layers[0], view)

    if served.device != "cuda":
        return run
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run()

    def replay():
        graph.replay()
        return output

    return replay
