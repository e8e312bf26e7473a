"""Generator on a card: decode steps as CUDA graphs, planned while the step before is computed."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
pytest.importorskip("transformers")
pytestmark = pytest.mark.gpu

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from radixkv.integrations.transformers import Generator  # noqa: E402

SYSTEM = [(7 * i) % 89 for i in range(300)]
PROMPTS = [[*SYSTEM, *range(i, 2 * i + 1)] for i in range(12)]
NEW_TOKENS = 20


def llama(dtype):
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=256,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to("cuda", dtype).eval()


@pytest.fixture(scope="module")
def exact():
    return llama(torch.float32)


@pytest.fixture(scope="module")
def expected(exact):
    """Greedy tokens of each prompt, by the model and nothing else."""
    return [greedy(exact, prompt) for prompt in PROMPTS]


@torch.no_grad()
def greedy(model, prompt):
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        ids.append(int(model(torch.tensor([ids], device="cuda")).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("backend", ["reference", "triton", "tree"])
@pytest.mark.parametrize("graphs", [True, False])
def test_the_same_tokens_as_the_model_alone(exact, expected, backend, graphs):
    """More prompts than run at once, so batches shrink and grow and steps are planned in vain."""
    generator = Generator(exact, num_slots=900, max_batch=5, backend=backend, graphs=graphs)
    generations = [generator.submit(prompt, NEW_TOKENS - at) for at, prompt in enumerate(PROMPTS)]
    generator.run()
    for generation, tokens in zip(generations, expected, strict=True):
        assert generation.tokens == tokens[: generation.max_new_tokens]
    assert generator.cache.check_integrity() == []
    assert sum(each.numbers.cached_tokens for each in generations) >= 10 * len(SYSTEM)


@pytest.mark.parametrize("backend", ["triton", "tree"])
def test_a_decode_step_waits_for_its_tokens_and_nothing_else(backend):
    """Whatever else waited would wait for the step too, and nothing would be planned beside it."""
    generator = Generator(llama(torch.bfloat16), num_slots=900, max_batch=8, backend=backend)
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


def test_garbage_that_is_found_during_a_capture_does_no_harm():
    """The graphs of an earlier generator, which a collection in the capture would destroy."""
    model = llama(torch.bfloat16)
    held = [ring_of(run(Generator(model, num_slots=900, backend="tree")))]
    generator = Generator(model, num_slots=900, backend="tree")
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
