"""SGLang's engine on the CPU, with a tiny model whose tokens depend on the whole prompt."""

import os
from pathlib import Path

STUBS = Path(__file__).parent / "stubs"
VOCABULARY, CONTEXT = 1000, 2048


def environment(**more):
    """What a process needs to run SGLang here."""
    return os.environ | {
        "PYTHONPATH": f"{STUBS}{os.pathsep}{Path(__file__).parents[3]}",
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        **more,
    }


def tiny_model(folder):
    """Two layers, random weights, no tokenizer."""
    from tests.support.llamas import llama

    model = llama(
        vocab_size=VOCABULARY, hidden_size=64, max_position_embeddings=CONTEXT, head_dim=16
    )
    model.save_pretrained(folder)
    return folder


def arguments(model, backend, *, page_size=1, num_slots=1200, **more):
    """Of `Engine`. backend: None for SGLang's own cache."""
    return {
        "model_path": str(model),
        "skip_tokenizer_init": True,
        "device": "cpu",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "dtype": "float32",
        "disable_overlap_schedule": True,
        "max_total_tokens": num_slots,
        "max_running_requests": 8,
        "page_size": page_size,
        "mem_fraction_static": 0.3,
        "context_length": CONTEXT,
        "log_level": "warning",
        "skip_server_warmup": True,
        "radix_cache_backend": backend,
        "chunked_prefill_size": 128,
        "enable_cache_report": True,
        "random_seed": 1,
        **more,
    }
