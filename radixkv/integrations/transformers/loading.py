"""Models and tokenizers from folders and GGUF files on disk; nothing is downloaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from radixkv.errors import InvalidArgumentError
from radixkv.integrations.transformers.convert import convert_gguf
from radixkv.prompts.gguf import SMOLLM2, find_smollm2


def load_model(
    path: str | Path, *, dtype: torch.dtype | str = "auto", device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """The model in a Hugging Face folder or a GGUF file, or "smollm2", ready to serve.

    Parameters
    ----------
    path
        A folder with the model's files, a .gguf file, or "smollm2".
    dtype
        "auto" is what the folder was saved in; a GGUF file is converted to float32, once, which
        takes a while (see `convert_gguf`).
    device
        As torch names it.

    Returns
    -------
    PreTrainedModel
        In evaluation mode.

    Raises
    ------
    InvalidArgumentError
        For a path that is neither, or whose files are damaged.
    """
    folder = _folder(path)
    with _reading(folder):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, device_map=str(device), local_files_only=True
        )
    return model


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a Hugging Face folder or a GGUF file; converts as `load_model` does.

    Parameters
    ----------
    path
        A folder with the model's files, a .gguf file, or "smollm2".

    Returns
    -------
    PreTrainedTokenizerBase
        As transformers makes it.
    """
    folder = _folder(path)
    with _reading(folder):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
    return tokenizer


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Says in one sentence what is missing or damaged in `folder`."""
    try:
        yield
    except (OSError, ValueError, SafetensorError) as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidArgumentError(
            f"no model can be read from {folder}: {cause}. A folder that was converted from a GGUF "
            "file may be deleted and is then made again",
            folder=str(folder),
        ) from error


def _folder(path: str | Path) -> Path:
    path = find_smollm2() if path == SMOLLM2 else Path(path)
    if path.is_dir():
        return path
    if path.is_file() and path.suffix == ".gguf":
        return convert_gguf(path)
    raise InvalidArgumentError(
        f"model must be a Hugging Face folder, a .gguf file or {SMOLLM2!r}; got {str(path)!r}",
        path=str(path),
    )
