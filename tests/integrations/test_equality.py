"""SmolLM2 in float32 says the same with the cache as without; bench/equality.py has it all."""

import json
import lzma

import pytest
import torch

from radixkv.integrations.transformers import Generator

NEW_TOKENS = 12
SYSTEM = (
    "You are the concierge of a small hotel by the sea. Answer in one or two friendly sentences. "
    "Breakfast is from 7 to 10, the boat to the island leaves at 9:30 and 14:15, and the key of "
    "the sauna hangs behind the desk. If you do not know something, say so and offer to find out."
)
QUESTIONS = [
    "When does the first boat leave, and can we still have breakfast before it?",
    "When is the last boat back from the island?",
    "My daughter would like to try the sauna tonight; where do we get the key?",
]


def chat(question):
    return (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.fixture(scope="module")
def own_prompts(smollm2_tokenizer):
    return [smollm2_tokenizer.encode(chat(question)) for question in QUESTIONS]


@pytest.fixture(scope="module")
def traced_prompts(smollm2_tokenizer, traces):
    prompts = []
    for name in ("taubench_airline", "mtbench101", "lmcache_magagent"):
        with lzma.open(traces / f"{name}.jsonl.xz", "rt") as lines:
            prompt = max((json.loads(next(lines))["prompt"] for _ in range(8)), key=len)
        ids = smollm2_tokenizer.encode(prompt)
        prompts.append(ids[:100] + ids[-100:])
    return prompts


def alone(model, prompt):
    """Greedy tokens of transformers' own generate, and the logits they were drawn from."""
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return output.sequences[0, len(prompt) :].tolist(), torch.cat(output.logits)


@pytest.mark.parametrize(
    ("prompts", "page_size", "chunk_size", "num_slots"),
    [
        ("own_prompts", 1, 64, 160),
        ("own_prompts", 16, None, 176),
        ("traced_prompts", 1, None, 416),
        ("traced_prompts", 16, 64, 416),
    ],
)
def test_the_same_tokens_with_the_cache_as_without(
    request, smollm2, prompts, page_size, chunk_size, num_slots
):
    prompts = request.getfixturevalue(prompts)
    generator = Generator(smollm2, num_slots=num_slots, page_size=page_size, chunk_size=chunk_size)
    generations = [generator.submit(prompt, NEW_TOKENS, keep_logits=True) for prompt in prompts]
    generator.run()
    for prompt, generation in zip(prompts, generations, strict=True):
        tokens, logits = alone(smollm2, prompt)
        assert generation.tokens == tokens
        assert (torch.stack(generation.logits) - logits).abs().max() < 2e-4
    assert sum(generation.numbers.retractions for generation in generations) > 0
    assert generator.cache.check_integrity() == []
    stats = generator.cache.stats()
    assert stats.evicted_tokens > 0
