"""Generator over the Triton kernels; on a card also with decode steps as CUDA graphs."""

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("transformers")

from radixkv.integrations.transformers import Generator
from tests.support.attention_batches import difference
from tests.support.llamas import greedy, llama
from tests.support.model_types import tiny

ON_CARD = torch.cuda.is_available()
# Heads of 64, which the CUDA kernels serve. What is interpreted is to end within seconds.
SIZES = {"hidden_size": 256, "max_position_embeddings": 512} if ON_CARD else {}
SYSTEM = [(7 * i) % 89 for i in range(300 if ON_CARD else 100)]
PROMPTS = [[*SYSTEM, *range(i, 2 * i + 1)] for i in range(12 if ON_CARD else 5)]
NEW_TOKENS = 20 if ON_CARD else 7


def on_card(test):
    return pytest.mark.gpu(pytest.mark.skipif(not ON_CARD, reason="no CUDA device")(test))


def generator_of(model, backend, **how):
    """A tree is taken although it pays for no model as small as this."""
    generator = Generator(model, num_slots=900, backend=backend, **how)
    if backend == "tree":
        generator.attention.kernels.mode = "tree"
    return generator


@pytest.fixture(scope="module")
def exact(device):
    return llama(device=device, **SIZES)


@pytest.fixture(scope="module")
def alone(exact):
    return greedy(exact)


@torch.no_grad()
def logits_of(model, prompt, tokens):
    """What the model alone draws each of `tokens` from."""
    ids = torch.tensor([prompt + tokens], device=model.device)
    return model(ids).logits[0, len(prompt) - 1 : -1]


@pytest.mark.parametrize("backend", ["triton", "tree"])
@pytest.mark.parametrize("graphs", [True, False] if ON_CARD else [False])
def test_the_same_tokens_as_the_model_alone(exact, alone, backend, graphs):
    """More prompts than run at once, so batches shrink and grow and steps are planned in vain."""
    generator = generator_of(exact, backend, max_batch=5 if ON_CARD else 3, graphs=graphs)
    generations = [
        generator.submit(prompt, NEW_TOKENS - at, keep_logits=True)
        for at, prompt in enumerate(PROMPTS)
    ]
    shared_runs = 0
    while generator.step():
        if backend == "tree":
            shared_runs += generator.attention.explain().shared_runs
    assert (backend == "tree") == (shared_runs > 0)
    for generation, prompt in zip(generations, PROMPTS, strict=True):
        assert generation.tokens == alone(prompt, generation.max_new_tokens)
        # A token that is not seen need not change what is drawn.
        expected = logits_of(exact, prompt, generation.tokens)
        assert difference(torch.stack(generation.logits), expected) < 1e-4
    assert generator.cache.check_integrity() == []
    cached = sum(each.numbers.cached_tokens for each in generations)
    assert cached >= (len(PROMPTS) - 2) * len(SYSTEM)


@pytest.mark.parametrize("backend", ["triton", "tree"] if ON_CARD else ["tree"])
def test_latent_attention_gives_the_same_tokens_as_the_model_alone(device, backend):
    model = tiny("deepseek_v3").to(device)
    generator = generator_of(model, backend, max_batch=3)
    prompts = [[*SYSTEM[:70], *range(i, 2 * i + 1)] for i in range(3)]
    generations = [generator.submit(prompt, 3, eos_ids=(), keep_logits=True) for prompt in prompts]
    generator.run()
    assert generator.pool.is_latent
    for generation, prompt in zip(generations, prompts, strict=True):
        assert generation.tokens == greedy(model)(prompt, 3)
        expected = logits_of(model, prompt, generation.tokens)
        assert difference(torch.stack(generation.logits), expected) < 1e-4
    assert sum(each.numbers.cached_tokens for each in generations) >= 70


@on_card
@pytest.mark.parametrize("backend", ["triton", "tree"])
def test_a_decode_step_waits_for_its_tokens_and_nothing_else(backend):
    """If anything else waited, it would wait for the step, and nothing would be planned."""
    model = llama(device="cuda", dtype=torch.bfloat16, **SIZES)
    generator = generator_of(model, backend)
    generations = [generator.submit(prompt, NEW_TOKENS) for prompt in PROMPTS[:8]]
    while not all(len(each.tokens) > 4 for each in generations):
        generator.step()
    before = [len(each.tokens) for each in generations]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            generator.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [len(each.tokens) for each in generations] == [n + 5 for n in before]


@on_card
def test_garbage_that_is_found_during_a_capture_does_no_harm():
    """The graphs of an earlier generator, which a collection in the capture would destroy."""
    model = llama(device="cuda", dtype=torch.bfloat16, **SIZES)
    held = [ring_of(run(generator_of(model, "tree")))]
    generator = generator_of(model, "tree")
    call = generator._paged._call

    def littering(*inputs, **how):
        if torch.cuda.is_current_stream_capturing():
            held.clear()
            assert len([[] for _ in range(100_000)]) == 100_000  # enough for a collection
        return call(*inputs, **how)

    generator._paged._call = littering
    run(generator)
    assert not held


def ring_of(thing):
    """Holds `thing`, and itself: only a collection of garbage frees them."""
    ring = [thing]
    ring.append(ring)
    return ring


def run(generator):
    generations = [generator.submit(prompt, NEW_TOKENS) for prompt in PROMPTS[:3]]
    generator.run()
    assert all(len(each.tokens) == NEW_TOKENS for each in generations)
    return generator
