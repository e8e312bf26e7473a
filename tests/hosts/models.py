"""The tiny model that engines serve here, and an adapter of it."""

import json

VOCABULARY, CONTEXT, HIDDEN, HEAD = 1000, 2048, 64, 32  # vLLM knows no shorter heads on a CPU
RANK = 4
WIDTHS = {"q_proj": 4 * HEAD, "k_proj": 2 * HEAD, "v_proj": 2 * HEAD}


def tiny_model(folder, vocabulary=VOCABULARY):
    """Two layers, random weights, no tokenizer; its tokens depend on the whole prompt."""
    from tests.support.llamas import llama

    model = llama(
        vocab_size=vocabulary, hidden_size=HIDDEN, max_position_embeddings=CONTEXT, head_dim=HEAD
    )
    model.save_pretrained(folder)
    return folder


def tiny_adapter(folder):
    """A LoRA adapter of it, of random weights, as peft saves one."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "",
        "r": RANK,
        "lora_alpha": RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(WIDTHS),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    weights = {}
    for layer in range(2):
        for target, width in WIDTHS.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{target}.lora"
            weights[f"{name}_A.weight"] = torch.randn(RANK, HIDDEN)
            weights[f"{name}_B.weight"] = torch.randn(width, RANK)
    save_file(weights, folder / "adapter_model.safetensors")
    return folder
