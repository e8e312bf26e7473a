"""Chats as the text that a model reads: prepared as engines do, rendered by transformers."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.extras import missing
from radixkv.prompts import content, fields
from radixkv.prompts.chats import Chat, Message
from radixkv.prompts.fields import FieldError
from radixkv.prompts.printable import on_one_line

# Templates that write today's date get that of the request: a log reads the same every day.
_DATE = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
_DATE_NAME = "date_of_request_{}"
_LOOPS_OVER_PARTS = re.compile(r"for\s+\w+\s+in\s+(message|msg|m)(\.content|\[['\"]content['\"]\])")
_MEDIA = ("image", "audio", "video", "vision")


@dataclass(frozen=True, slots=True)
class Preparation:
    """How an engine prepares a request for the template.

    is_dumped: tools, and calls of them, also have the fields that the request left out, and nothing
    that the engine does not know. ends_as_user: an answer at the end of a chat is a user's message.
    separator: between text parts, where the template takes text alone.
    """

    is_dumped: bool
    ends_as_user: bool
    separator: str


# As SGLang 0.5.23 and vLLM 0.32 do.
PREPARATIONS = {
    "sglang": Preparation(is_dumped=True, ends_as_user=True, separator=" "),
    "vllm": Preparation(is_dumped=False, ends_as_user=False, separator="\n"),
}


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template and what it receives with the chat.

    tool_template: takes the place of `source` for chats with tools; None: `source` does both.
    special_tokens: such as {"bos_token": "<s>"}. origin: where it comes from, for people.
    """

    source: str
    tool_template: str | None
    special_tokens: dict[str, str]
    preparation: Preparation
    origin: str

    def prompt(self, chat: Chat) -> str:
        """The text of a request, up to where the answer begins. Raises FieldError."""
        return self._render(chat, chat.messages, asks=True)

    def answer(self, chat: Chat, message: Message) -> str:
        """What an answer adds to its prompt, as the next prompt will show it. Raises FieldError."""
        asked = self.prompt(chat)
        whole = self._render(chat, [*chat.messages, message], asks=False)
        if whole.startswith(asked):
            return whole[len(asked) :].rstrip("\n")
        # Such as templates that open a thought in the prompt and leave it out of history.
        return content.as_text(content.parts_of("answer", message.get("content")), "")

    def _render(self, chat: Chat, messages: list[Message], *, asks: bool) -> str:
        source = self.tool_template if chat.tools and self.tool_template else self.source
        prepared = [self._message(at, each, source) for at, each in enumerate(messages)]
        if asks and self.preparation.ends_as_user:
            _end_as_user(prepared)
        plain, dates = _with_dates(source, chat.ts)
        options = {**self.special_tokens, **chat.options, **dates, "add_generation_prompt": asks}
        try:
            return _rendered(plain, prepared, self._tools(chat.tools), options)
        except BackendUnavailableError:
            raise
        except Exception as error:  # a template may raise anything
            bare = [each["function"] for each in self._tools(chat.tools) or []]
            return self._second_try(plain, prepared, bare, options, error)

    def _second_try(
        self, plain: str, prepared: Any, tools: Any, options: dict[str, Any], first: Exception
    ) -> str:
        """As SGLang does: some templates expect tools without their wrapper."""
        try:
            return _rendered(plain, prepared, tools or None, options)
        except Exception:  # the same
            problem = f"messages: the chat template raised: {on_one_line(str(first))}"
            raise FieldError("messages", problem) from None

    def _tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        if not tools:
            return None
        functions = [each.get("function", each) for each in tools]
        if self.preparation.is_dumped:
            return [_dumped_tool(each) for each in functions]
        return [{"type": "function", "function": each} for each in functions]

    def _message(self, at: int, message: Message, source: str) -> Message:
        where = f"messages[{at}]"
        parts = content.parts_of(f"{where}.content", message.get("content"))
        if isinstance(parts, list) and not takes_parts(source):
            parts = content.as_text(parts, self.preparation.separator)
        prepared = {name: value for name, value in message.items() if value is not None}
        prepared["content"] = parts
        if calls := message.get("tool_calls"):
            calls = _calls(f"{where}.tool_calls", calls)
            is_dumped = self.preparation.is_dumped
            prepared["tool_calls"] = [_dumped_call(each) for each in calls] if is_dumped else calls
        return prepared


def takes_parts(source: str) -> bool:
    """Whether a template takes content as a list of parts, not as text alone."""
    return any(word in source for word in _MEDIA) or bool(_LOOPS_OVER_PARTS.search(source))


def _dumped_tool(function: dict[str, Any]) -> dict[str, Any]:
    """The fields of a function in the order in which they were sent."""
    known = ("description", "name", "parameters")
    optional = ("strict", "defer_loading")
    sent = {name: value for name, value in function.items()
            if name in known or (name in optional and value is not None)}  # fmt: skip
    whole = sent | {name: None for name in known if name not in sent}
    return {"type": "function", "function": whole, "defer_loading": None}


def _dumped_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {name: call["function"].get(name) for name in ("name", "arguments")}
    return {"id": call.get("id"), "index": call.get("index"), "type": "function",
            "function": function}  # fmt: skip


def _end_as_user(messages: list[Message]) -> None:
    """An answer that is to be continued, SGLang says as the user's."""
    last = messages[-1]
    if last["role"] == "assistant" and isinstance(last["content"], str):
        messages[-1] = {"role": "user", "content": last["content"]}


def _calls(where: str, calls: Any) -> list[Any]:
    """Tool calls with their arguments as an object; logs have them as JSON in a string."""
    if not isinstance(calls, list):
        fields.wrong(where, calls, "a list of tool calls")
    return [_call(f"{where}[{at}]", each) for at, each in enumerate(calls)]


def _call(where: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        fields.wrong(where, call, 'an object with a "function"')
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            fields.wrong(f"{where}.function.arguments", arguments, "JSON")
    return {**call, "function": {**function, "arguments": arguments}}


def _with_dates(source: str, ts: float | None) -> tuple[str, dict[str, str]]:
    """The template with a variable in place of each date, and the values of these."""
    moment = _moment(ts)
    dates: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        name = _DATE_NAME.format(len(dates))
        dates[name] = moment.strftime(found[2])
        return name

    return _DATE.sub(name_of, source), dates


def _moment(ts: float | None) -> datetime:
    try:
        return datetime.fromtimestamp(ts or 0, UTC)
    except (ValueError, OverflowError, OSError):
        fields.wrong("ts", ts, "seconds since 1970, up to the year 9999")


def check_template(source: str) -> None:
    """Raises InvalidArgumentError for a template that cannot be compiled."""
    from jinja2 import TemplateError, TemplateSyntaxError

    try:
        _rendered(source, [{"role": "user", "content": ""}], None, {})
    except TemplateSyntaxError as error:
        raise InvalidArgumentError(f"the chat template cannot be compiled: {error}") from error
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError):
        return  # it is for another kind of chat


def _rendered(source: str, messages: Any, tools: Any, options: dict[str, Any]) -> str:
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError:
        raise missing("the template of a chat", "transformers", "lab") from None
    options = {"tools": tools, "add_generation_prompt": True, **options}
    # Its annotation says str; it returns the texts and the places of answers in them.
    found: Any = render_jinja_template([messages], chat_template=source, **options)
    text: str = found[0][0]
    return text
