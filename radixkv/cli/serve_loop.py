"""Prompts in, answers out: the loop of `radixkv serve` around a `Generator`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from radixkv.cli.prompts import Inbox
from radixkv.cli.server_options import at_signal, next_of
from radixkv.cli.show import console, print_json
from radixkv.errors import InvalidArgumentError, RadixKVError
from radixkv.integrations.transformers import Generation, Generator


class ServeLoop:
    """Feeds a generator and prints its answers, in the order in which they are done."""

    def __init__(
        self,
        generator: Generator,
        tokenizer: Any,
        *,
        max_new_tokens: int,
        chat: bool,
        as_json: bool,
    ) -> None:
        self._generator, self._tokenizer = generator, tokenizer
        self._max_new_tokens, self._chat, self._as_json = max_new_tokens, chat, as_json
        self._console = console()
        self._pending: dict[int, tuple[str, Generation]] = {}
        self._is_stopping = False
        self.num_failed = 0

    @contextmanager
    def until_signals(self, inbox: Inbox) -> Iterator[None]:
        """The first SIGTERM or SIGINT ends `run`, the second the process."""

        def stop() -> None:
            self._is_stopping = True
            inbox.put(None)  # wakes `run`

        with at_signal(stop):
            yield

    def run(self, inbox: Inbox, *, once: bool) -> bool:
        """Answer prompts until a signal (True) or, if `once`, until all are answered (False)."""
        is_open = True
        while not self._is_stopping:
            is_idle = not self._step()
            if is_idle and once and not is_open:
                return False
            while is_idle or not inbox.empty():
                prompt = next_of(inbox)
                if prompt is None:
                    is_open = False
                    break
                if isinstance(prompt, InvalidArgumentError):
                    self._print_error(prompt)
                    continue
                self._submit(*prompt)
                is_idle = False
        return True

    def drain(self, grace_s: float) -> None:
        """Finish what is running within `grace_s`; the rest is not answered."""
        for _, generation in self._pending.values():
            if not generation.is_running:
                generation.cancel()
        end = time.monotonic() + grace_s
        while time.monotonic() < end and self._step():
            pass
        if self._pending:
            print(f"radixkv: {len(self._pending)} prompts are not answered", file=sys.stderr)

    def _step(self) -> bool:
        is_busy = self._generator.step()
        for number, (prompt, generation) in list(self._pending.items()):
            if generation.finish_reason in ("stop", "length"):
                self._print(number, prompt, generation)
                del self._pending[number]
            elif generation.error is not None:
                self._print_error(generation.error, number)
                del self._pending[number]
        return is_busy

    def _submit(self, number: int, prompt: str) -> None:
        try:
            generation = self._generator.submit(self._encode(prompt), self._max_new_tokens)
        except RadixKVError as error:
            self._print_error(error, number)
        else:
            self._pending[number] = (prompt, generation)

    def _encode(self, prompt: str) -> Any:
        if not self._chat:
            return self._tokenizer.encode(prompt)
        message = {"role": "user", "content": prompt}
        return self._tokenizer.apply_chat_template(
            [message], add_generation_prompt=True, return_dict=False
        )

    def _print(self, number: int, prompt: str, generation: Generation) -> None:
        numbers = generation.numbers
        text = self._tokenizer.decode(generation.tokens, skip_special_tokens=True)
        if self._as_json:
            answer = {"number": number, "prompt": prompt, "text": text}
            counts = {
                "prompt_tokens": numbers.prompt_tokens,
                "cached_tokens": numbers.cached_tokens,
            }
            print_json({**answer, **counts, "tokens": generation.tokens})
            return
        shares = f"{numbers.cached_tokens} of {numbers.prompt_tokens} tokens from cache"
        self._console.print(Text(f"[{number}] {shares}: {prompt}", style="dim"))
        self._console.print(Text(text), soft_wrap=True)

    def _print_error(self, error: BaseException, number: int | None = None) -> None:
        self.num_failed += 1
        where = "" if number is None else f"prompt {number}: "
        print(f"radixkv: {where}{error}", file=sys.stderr, flush=True)
