"""What models keep of a token, against counts by hand from their published configurations."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.errors import InvalidArgumentError
from radixkv.memory.model import Layer, ModelShape, read_model, shape_of

CONFIGS = Path(__file__).with_name("model_configs")

# Bytes of K and V of one token in bfloat16, and on each of 8 GPUs: layers x (K and V) x heads x
# size x bytes; a latent with its rotary part once; layers with a state nothing.
BY_HAND = {
    "llama-3.1-8b": (32 * 2 * 8 * 128 * 2, 32 * 2 * 1 * 128 * 2),
    "llama-3.1-70b": (80 * 2 * 8 * 128 * 2, 80 * 2 * 1 * 128 * 2),
    "qwen3-8b": (36 * 2 * 8 * 128 * 2, 36 * 2 * 1 * 128 * 2),
    "qwen3-30b-a3b": (48 * 2 * 4 * 128 * 2, 48 * 2 * 1 * 128 * 2),
    "qwen3-vl-8b": (36 * 2 * 8 * 128 * 2, 36 * 2 * 1 * 128 * 2),
    "mixtral-8x7b": (32 * 2 * 8 * 128 * 2, 32 * 2 * 1 * 128 * 2),
    "minimax-m2.5": (62 * 2 * 8 * 128 * 2, 62 * 2 * 1 * 128 * 2),
    "gpt-oss-120b": (36 * 2 * 8 * 64 * 2, 36 * 2 * 1 * 64 * 2),
    "gemma-2-2b": (26 * 2 * 4 * 256 * 2, 26 * 2 * 1 * 256 * 2),
    "gemma-3": (26 * 2 * 4 * 256 * 2, 26 * 2 * 1 * 256 * 2),
    "mistral-7b": (32 * 2 * 8 * 128 * 2, 32 * 2 * 1 * 128 * 2),
    "phi-3-mini": (32 * 2 * 32 * 96 * 2, 32 * 2 * 4 * 96 * 2),
    "deepseek-v3": (61 * (512 + 64) * 2, 61 * (512 + 64) * 2),
    "kimi-k2": (61 * (512 + 64) * 2, 61 * (512 + 64) * 2),
    "qwen3-next-80b": (12 * 2 * 2 * 256 * 2, 12 * 2 * 1 * 256 * 2),
    "qwen3.5-27b": (16 * 2 * 4 * 256 * 2, 16 * 2 * 1 * 256 * 2),
    "nemotron-h-56b": (10 * 2 * 8 * 128 * 2, 10 * 2 * 1 * 128 * 2),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_of_a_token_are_those_counted_by_hand(name):
    model = read_model(CONFIGS / f"{name}.json")
    assert (model.kv_values() * 2, model.kv_values(8) * 2) == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert-base", "model must keep K/V; got .*, which is an encoder"),
        ("glm-5", "model type must be .*; got 'glm_moe_dsa'"),
        ("gemma-4-26b", "model type must be .*; got 'gemma4_text'"),
        ("llama-4-scout", "model type must be .*; got 'llama4_text'"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(name, words):
    with pytest.raises(InvalidArgumentError, match=words):
        read_model(CONFIGS / f"{name}.json")


@pytest.mark.parametrize(
    ("name", "windows", "window"),
    [("gpt-oss-120b", 18, 128), ("gemma-2-2b", 13, 4096), ("gemma-3", 22, 4096),
     ("mistral-7b", 32, 4096), ("qwen3-8b", 0, None)],
)  # fmt: skip
def test_layers_with_a_window(name, windows, window):
    model = read_model(CONFIGS / f"{name}.json")
    assert (model.count("window"), model.window) == (windows, window)
    assert model.window_values() * len(model.layers) == model.kv_values() * windows


@pytest.mark.parametrize(
    ("name", "active"),
    # Billions of parameters that a token passes, without embeddings, as the models' cards have it.
    [("llama-3.1-8b", 7.0), ("qwen3-8b", 6.95), ("qwen3-30b-a3b", 2.7), ("mixtral-8x7b", 12.6),
     ("deepseek-v3", 35.6), ("kimi-k2", 30.3), ("gpt-oss-120b", 4.5), ("minimax-m2.5", 9.8)],
)  # fmt: skip
def test_parameters_that_a_token_passes(name, active):
    model = read_model(CONFIGS / f"{name}.json")
    assert model.flops_per_token / 2e9 == pytest.approx(active, rel=0.02)


def test_operations_of_layers_with_a_state_are_refused_by_name():
    model = read_model(CONFIGS / "qwen3-next-80b.json")
    with pytest.raises(InvalidArgumentError, match="qwen3-next-80b has layers that keep a"):
        model.prefill_flops(0, 10)


def test_a_latent_prompt_costs_what_its_heads_multiply():
    model = read_model(CONFIGS / "deepseek-v3.json")
    pairs = 61 * 128 * (192 + 128)
    attended = sum(range(1, 101))
    assert model.prefill_flops(0, 100) == 100 * model.flops_per_token + 2 * pairs * attended


def test_a_window_is_attended_and_nothing_before_it():
    model = ModelShape("m", (Layer("window", 1, 4, heads=2, pair_values=3, matrices=0),), window=5)
    seen = sum(2 * 2 * 3 * min(at + 1, 5) for at in range(3, 20))
    assert model.prefill_flops(3, 20) == seen
    assert np.allclose(model.prefill_flops([0, 3], [3, 20]).sum(), model.prefill_flops(0, 20))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "llama"}, "'num_hidden_layers'"),
        ({"model_type": "granitemoehybrid", "num_hidden_layers": 4}, "'layer_types'"),
        ({"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["chunked"]}, "'chunked'"),
        ({}, "model type must be .*; got 'None'"),
    ],
)
def test_a_configuration_without_what_is_needed(config, words):
    with pytest.raises(InvalidArgumentError, match=words):
        shape_of("m", config)


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_file_that_is_not_a_configuration(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"config\.json"):
        read_model(tmp_path)


def test_a_hybrid_of_granite():
    config = {"model_type": "granitemoehybrid", "num_hidden_layers": 4, "hidden_size": 64,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
              "layer_types": ["mamba", "attention", "mamba", "mamba"]}  # fmt: skip
    model = shape_of("granite", config)
    assert (model.kv_values(), model.count("state")) == (2 * 2 * 16, 3)


# ---- plan ----


def plan(*options):
    return CliRunner().invoke(app, ["plan", *map(str, options)])


def test_plan_of_a_model(tmp_path):
    found = plan("--model", CONFIGS / "deepseek-v3.json", "--memory", "55G", "--context", 3000,
                 "--dtype", "fp8", "--json")  # fmt: skip
    shown = json.loads(found.stdout)
    assert (shown["bytes_per_token"], shown["dtype"]) == (61 * 576, "fp8_e4m3")
    assert shown["memory_bytes"] == 55 * 10**9
    shown = plan("--model", CONFIGS / "gpt-oss-120b.json", "--memory", "8GiB", "--context", 9,
                "--tp", 8).stdout  # fmt: skip
    assert "of those in windows of 128" in shown
    assert "each of 8 GPUs" in shown


def test_plan_of_nothing_says_what_is_missing():
    shown = plan("--memory", "8GiB", "--context", 9)
    assert shown.exit_code == 2
    assert "layers must be given where no model is; got None" in shown.stderr


@pytest.mark.parametrize(
    ("content", "lengths"),
    [
        (b"\xef\xbb\xbf12\n7\n", [12, 7]),
        (b"12, 7;9\n", [12, 7, 9]),
        (b"ContextTokens,GeneratedTokens\n12,3\n7,0\n", [15, 7]),
        (b'{"prompt": [1, 2, 3], "outputs": [[4]]}\n', [4]),
    ],
)
def test_plan_reads_lengths_as_the_lab_does(tmp_path, content, lengths):
    path = tmp_path / "lengths"
    path.write_bytes(content)
    shape = ["--layers", 1, "--kv-heads", 1, "--head-dim", 8]
    found = plan(*shape, "--memory", "1MB", "--context", 20, "--lengths", path, "--json")
    assert found.exit_code == 0, found.stderr
    shown = json.loads(found.stdout)["lengths"]
    assert (shown["count"], shown["tokens"]) == (len(lengths), sum(lengths))


def test_plan_takes_the_column_that_is_named_and_says_which_line_is_wrong(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("a;n\nx;12\nx;7\n")
    shape = ["--layers", 1, "--kv-heads", 1, "--head-dim", 8, "--memory", "1MB", "--context", 20]
    found = plan(*shape, "--lengths", path, "--length", "n", "--json")
    assert json.loads(found.stdout)["lengths"]["tokens"] == 19
    shown = plan(*shape, "--lengths", path)
    assert "columns are a, n; one of" in shown.stderr
    path.write_text("12\nmany\n")
    shown = plan(*shape, "--lengths", path)
    assert "lengths.csv, line 2: a length must be an int, as 812; got 'many'" in shown.stderr
