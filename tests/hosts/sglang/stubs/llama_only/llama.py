"""Llama as SGLang has it, with adapters on a CPU: LoRA asks for pinned memory, of which there is
none without a device."""

from functools import wraps

import torch
from sglang.srt.models.llama import LlamaForCausalLM

EntryClass = LlamaForCausalLM


def _unpinned(make):
    @wraps(make)
    def unpinned(*args, pin_memory=False, **how):
        return make(*args, **how)

    return unpinned


def _as_it_is(tensor):
    return tensor


for _name in ("tensor", "zeros", "empty"):
    setattr(torch, _name, _unpinned(getattr(torch, _name)))
torch.Tensor.pin_memory = _as_it_is  # type: ignore[method-assign, assignment]
