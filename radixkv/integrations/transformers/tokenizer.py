"""The tokenizer that a GGUF file carries."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

PREFIX = "tokenizer.ggml."
CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


def tokenizer_from_gguf(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the GGUF file `path`, chat template included.

    Where the file names the `smollm` rule, every digit is a token of its own, which transformers'
    reading of GGUF leaves out; other files are read by transformers.
    """
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    metadata = {name.removeprefix(PREFIX): field.contents() for name, field in fields.items()}
    if metadata.get("pre") == "smollm":
        return _digit_splitting_bpe(metadata)
    other: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, local_files_only=True
    )
    # transformers 5.17 gives some of them the names that its own gpt2 uses.
    for name, token in _named_tokens(metadata).items():
        setattr(other, name, token)
    return other


def _digit_splitting_bpe(metadata: dict[str, Any]) -> PreTrainedTokenizerBase:
    tokens: list[str] = metadata["tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["merges"]]
    tokenizer = Tokenizer(BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata["token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == CONTROL_TOKEN
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **_named_tokens(metadata),
    )


def _named_tokens(metadata: dict[str, Any]) -> dict[str, str]:
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        f"{ours}_token": metadata["tokens"][metadata[f"{theirs}_token_id"]]
        for ours, theirs in names.items()
        if f"{theirs}_token_id" in metadata
    }
