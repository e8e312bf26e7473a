"""Hugging Face models on radixkv: load one, and generate for many prompts that share prefixes.

>>> from radixkv.integrations.transformers import Generator, load_model  # doctest: +SKIP
>>> generator = Generator(load_model("path/to/model"), num_slots=4096)  # doctest: +SKIP
>>> generation = generator.submit([1, 2, 3], max_new_tokens=16)  # doctest: +SKIP
>>> generator.run()  # doctest: +SKIP
>>> generation.tokens  # doctest: +SKIP
"""

from radixkv.integrations.transformers.generation import Generation, GenerationNumbers
from radixkv.integrations.transformers.generator import Generator
from radixkv.integrations.transformers.loading import load_model, load_tokenizer
from radixkv.integrations.transformers.paged_model import PagedCache, PagedModel, pool_for
from radixkv.prompts.gguf import find_smollm2

__all__ = [
    "Generation",
    "GenerationNumbers",
    "Generator",
    "PagedCache",
    "PagedModel",
    "find_smollm2",
    "load_model",
    "load_tokenizer",
    "pool_for",
]
