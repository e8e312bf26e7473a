"""A folder with a real, random Llama of two layers, and a tokenizer of bytes."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from tests.support.llamas import llama

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


def save_tiny_model(folder: Path) -> None:
    save_tiny_tokenizer(folder)
    llama(vocab_size=len(ALPHABET), max_position_embeddings=4096).save_pretrained(folder)


def save_tiny_tokenizer(folder: Path) -> None:
    """Of a token a byte, with a chat template."""
    tokenizer = Tokenizer(BPE({letter: at for at, letter in enumerate(ALPHABET)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT).save_pretrained(folder)


def ids(text: str) -> list[int]:
    """The tokenizer's ids of plain text."""
    return [ALPHABET.index(letter.replace(" ", "Ġ")) for letter in text]
