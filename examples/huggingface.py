"""A Hugging Face model, unchanged, answers prompts that share a prefix.

    python examples/huggingface.py [MODEL]

MODEL: a folder, a .gguf file, or the packaged `smollm2`.
"""

import sys
from typing import Any

from radixkv.integrations.transformers import Generator, load_model, load_tokenizer

SYSTEM = "You work at the help desk of a library, and answer in one short sentence."
QUESTIONS = ("When do you open?", "How long may I keep a book?", "Is there coffee?")


def rendered(tokenizer: Any, question: str) -> list[int]:
    """The token ids of a chat in the model's own template."""
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return list(tokenizer.encode(text, add_special_tokens=False))


def main(model: str = "smollm2") -> None:
    tokenizer = load_tokenizer(model)
    generator = Generator(load_model(model), num_slots=2048, max_batch=4)
    first, *others = [rendered(tokenizer, question) for question in QUESTIONS]
    asked = [generator.submit(first, max_new_tokens=16)]
    generator.run()  # what is cached now, the others share
    asked += [generator.submit(prompt, max_new_tokens=16) for prompt in others]
    generator.run()
    for question, generation in zip(QUESTIONS, asked, strict=True):
        numbers = generation.numbers
        print(f"{question} {tokenizer.decode(generation.tokens, skip_special_tokens=True)!r}")
        print(f"  {numbers.cached_tokens} of {numbers.prompt_tokens} prompt tokens cached")


if __name__ == "__main__":
    main(*sys.argv[1:])
