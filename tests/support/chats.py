"""Chats as clients send them, with all that an engine prepares for the template."""

import json

WORDS = ["look", "über", "日本", "it's", '"quoted"', "a\nb", "1,000", "  ", "<|im_end|>", "🙂"]


def conversation(rng):
    """A request with tools, calls, results, parts, empty contents, and text that is not ASCII.

    rng: of numpy.
    """

    def text():
        return " ".join(rng.choice(WORDS, rng.integers(1, 6)))

    def user():
        parts = [{"type": "text", "text": text()} for _ in range(rng.integers(1, 3))]
        return {"role": "user", "content": parts if rng.random() < 0.3 else text()}

    messages = [{"role": "system", "content": text()}] if rng.random() < 0.7 else []
    for turn in range(rng.integers(1, 4)):
        messages.append(user())
        if rng.random() < 0.5:
            arguments = json.dumps({"q": text(), "n": int(rng.integers(9))}, ensure_ascii=False)
            call = {
                "id": f"call{turn:05d}",
                "type": "function",
                "function": {"name": "look", "arguments": arguments},
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text()})
        messages.append({"role": "assistant", "content": text()})
    if rng.random() < 0.9:
        messages.append(user())
    return {"messages": messages} | (_tools(rng, text()) if rng.random() < 0.7 else {})


def _tools(rng, description):
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    function = {"name": "look", "description": description, "parameters": parameters}
    names = rng.permutation([*function])[: rng.integers(1, 4)]
    function = {name: function[name] for name in ("name", *names)}
    if rng.random() < 0.2:
        function["strict"] = bool(rng.integers(2))
    how = {"tool_choice": "none"} if rng.random() < 0.1 else {}
    return {"tools": [{"type": "function", "function": function}], **how}
