"""Chats become the token ids that SGLang's own preparation gives, by transformers' tokenizers.

The preparation is restated here from what its server does: it dumps functions with their defaults,
flattens text parts where the template takes text, reads arguments of tool calls, and tries tools
with their wrapper where a template refuses them bare. RADIXKV_TEMPLATES names a folder of templates
of models (the sdist of llama-cpp-python 0.3.36 has 70); without it, three short ones are tried.
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


def conversation(rng):
    """A chat with tools, calls, results, parts, empty contents, and text that is not ASCII."""
    words = ["look", "über", "日本", "it's", '"quoted"', "a\nb", "1,000"]

    def text():
        return " ".join(rng.choice(words, rng.integers(1, 6)))

    def user():
        parts = [{"type": "text", "text": text()} for _ in range(rng.integers(1, 3))]
        return {"role": "user", "content": parts if rng.random() < 0.3 else text()}

    messages = [{"role": "system", "content": text()}] if rng.random() < 0.7 else []
    for turn in range(rng.integers(1, 4)):
        messages.append(user())
        if rng.random() < 0.5:
            arguments = json.dumps({"q": text(), "n": int(rng.integers(9))}, ensure_ascii=False)
            call = {"id": f"call{turn:05d}", "type": "function",
                    "function": {"name": "look", "arguments": arguments}}  # fmt: skip
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text()})
        messages.append({"role": "assistant", "content": text()})
    messages.append(user())
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    function = {"name": "look", "description": text(), "parameters": parameters}
    tools = {"tools": [{"type": "function", "function": function}]}
    return {"messages": messages} | (tools if rng.random() < 0.7 else {})


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
        messages.append({name: value for name, value in message.items() if value is not None})
    tools = [
        {"description": each["function"].get("description"), "name": each["function"]["name"],
         "parameters": each["function"].get("parameters"), "strict": False}
        for each in chat.get("tools", [])
    ] or None  # fmt: skip

    def ids(given):
        return tokenizer.apply_chat_template(
            messages, tools=given, add_generation_prompt=True, tokenize=True, return_dict=False
        )

    try:
        return ids(tools)
    except Exception:
        return ids([{"function": each} for each in tools] if tools else None)


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
