"""A GGUF file as a Hugging Face folder, converted once."""

import hashlib
import logging
from pathlib import Path
from typing import Any

import torch

from radixkv.atomic_files import PartialFolder
from radixkv.folders import cache_folder
from radixkv.prompts.gguf import tokenizer_from_gguf

# Part of the folder's name: another way to convert gets a folder of its own.
FORMAT = 2

log = logging.getLogger(__name__)


def convert_gguf(path: Path) -> Path:
    """The folder of config, weights (float32) and tokenizer made from the GGUF file `path`.

    Converted on the first call (some 20 s for 135 million parameters), found by the file's content
    afterwards. Safe when several processes do it at once: each makes its own folder, the first to
    finish renames it, and none sees half of one.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    folder = cache_folder() / f"{path.stem}-{digest}-v{FORMAT}"
    if not folder.is_dir():
        log.info("converting %s once, into %s", path, folder)
        _convert_into(path, folder)
    return folder


def _convert_into(path: Path, folder: Path) -> None:
    partial = PartialFolder(folder)
    try:
        _convert_model(path, partial.path)
        _convert_tokenizer(path, partial.path)
        partial.move()
    except OSError:
        # Another process was first: its folder prevents the rename, and serves as well.
        if not folder.is_dir():
            raise
    finally:
        partial.remove()


def _convert_model(path: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
    )
    # The weights are plain float32 now: they can be saved, and are not looked for as quantized.
    model.hf_quantizer = None
    del model.config.quantization_config
    # Names the architecture, and saves a tied weight as the embedding's: engines look for both.
    model.save_pretrained(folder)


def _convert_tokenizer(path: Path, folder: Path) -> None:
    tokenizer_from_gguf(path).save_pretrained(folder)
