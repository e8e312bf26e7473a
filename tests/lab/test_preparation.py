"""Chats become the token ids that SGLang's own preparation gives, by transformers' tokenizers.

The preparation is restated here from what its server 0.5.23 does: it dumps tools and calls of them
with the fields that were left out, flattens text parts where the template takes text, reads
arguments of tool calls, takes an answer at the end as the user's, and tries tools without their
wrapper where a template refuses them. `make host-sglang` asks the server itself.
RADIXKV_TEMPLATES names a folder of templates of models (the sdist of llama-cpp-python 0.3.36 has
70); without it, three short ones are tried.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from radixkv.errors import InvalidLogError
from radixkv.lab.logs.reading import Reading, read_log
from tests.support.chats import conversation

CONVERSATIONS = 50
SHORT = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "tools": "{{ bos_token }}{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}"
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}"
    "{% if message.tool_calls %}{% for c in message.tool_calls %}"
    "{{ c.function.arguments | tojson(ensure_ascii=True, separators=(',', ':')) }}"
    "{% endfor %}{% endif %}{% endfor %}",
    "parts": "{% for message in messages %}[{{ message.role }}]"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}<{{ part.text }}>{% endfor %}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools[0].function.name }}{% endif %}",
}


def templates():
    folder = os.environ.get("RADIXKV_TEMPLATES")
    paths = sorted(Path(folder).glob("*.jinja")) if folder else []
    return SHORT | {path.stem: path.read_text("utf-8") for path in paths}


# ---- the same as SGLang's server does it ----


def takes_parts(template):
    if any(word in template for word in ("image", "audio", "video", "vision")):
        return True
    loops = re.compile(r"for\s+\w+\s+in\s+(message|msg|m)(\.content|\[['\"]content['\"]\])")
    return bool(loops.search(template))


def as_server(chat, template, tokenizer):
    messages = []
    for message in json.loads(json.dumps(chat["messages"])):
        if message.get("content") is None:
            message["content"] = ""
        if isinstance(message["content"], list) and not takes_parts(template):
            message["content"] = " ".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            call["index"] = None
            for name in ("id", "index", "type", "function"):  # in this order
                call[name] = call.pop(name)
        messages.append({name: value for name, value in message.items() if value is not None})
    if messages[-1]["role"] == "assistant" and isinstance(messages[-1]["content"], str):
        messages[-1] = {"role": "user", "content": messages[-1]["content"]}
    defaults = {"description": None, "name": None, "parameters": None}
    functions = [each["function"] for each in chat.get("tools", [])]
    functions = [each | {name: None for name in defaults if name not in each} for each in functions]
    tools = [{"type": "function", "function": each, "defer_loading": None} for each in functions]
    if chat.get("tool_choice") == "none" or not tools:
        tools = None

    def ids(given):
        return tokenizer.apply_chat_template(
            messages, tools=given, add_generation_prompt=True, tokenize=True, return_dict=False
        )

    try:
        return ids(tools)
    except Exception:
        return ids(functions if tools else None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer of single bytes."""
    letters = sorted(ByteLevel.alphabet())
    made = Tokenizer(BPE({letter: at for at, letter in enumerate(letters)}, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<s>", "</s>"])
    path = tmp_path_factory.mktemp("tokenizer")
    made.save(str(path / "tokenizer.json"))
    return path


@pytest.mark.parametrize("name", templates())
def test_token_ids_are_those_of_the_server(folder, name, rng, tmp_path, monkeypatch):
    template = templates()[name]
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    # Both sides write the same day: the lab that of the request.
    dated = re.sub(r"strftime_now\(\s*(['\"]).*?\1\s*\)", "'A DAY'", template)
    tokenizer.chat_template = dated.replace("strftime_now", "no_such_name")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"chat_template": tokenizer.chat_template})
    )
    compared = 0
    for at in range(CONVERSATIONS):
        chat = conversation(rng)
        path = tmp_path / f"{at}.jsonl"
        path.write_text(json.dumps(chat))
        try:
            expected = as_server(chat, tokenizer.chat_template, tokenizer)
        except Exception:
            with pytest.raises(InvalidLogError):
                read_log(path, Reading(tokenizer=folder))
            continue
        found = read_log(path, Reading(tokenizer=folder))[0].token_ids
        assert np.array_equal(found, expected), at
        compared += 1
    assert compared or name not in SHORT
