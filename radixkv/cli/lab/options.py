"""What the commands of the lab share: how a log is read, and the cache that it goes through."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.errors import InvalidArgumentError, InvalidLogError

if TYPE_CHECKING:
    from radixkv.lab.logs.reading import Reading
    from radixkv.lab.logs.requests import RequestLog
    from radixkv.lab.logs.store import StoredLog
    from radixkv.lab.replay.rates import Rates
    from radixkv.lab.replay.replay import Replay
    from radixkv.lab.replay.setting import Setting
    from radixkv.lab.report.advice import Serving
    from radixkv.memory.model import ModelShape


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The files of a log and how they are read."""

    files: Annotated[
        list[str],
        typer.Argument(
            help="Request logs, plain or xz, gz, zst; also patterns, and - for standard input.",
            metavar="FILE",
        ),
    ]
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="A tokenizer.json, a folder with one, a .gguf file, or smollm2, for logs of text; "
            '"bytes": each byte is a token.'
        ),
    ] = None
    order: Annotated[
        str, typer.Option(help="file, time, or interleave-N: N sessions take turns.")
    ] = "file"
    format: Annotated[
        str | None,
        typer.Option(
            help="Format of the log, such as chat or blocks; by default recognized by its content."
        ),
    ] = None
    chat_template: Annotated[
        Path | None,
        typer.Option(help="Chat template; by default that next to the tokenizer, or ChatML."),
    ] = None
    session: Annotated[str | None, typer.Option(help="Field of the session.")] = None
    namespace: Annotated[
        str | None,
        typer.Option(help="Field of the namespace, such as meta.tenant."),
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out bad lines and report how many there were.")
    ] = False
    engine: Annotated[str, typer.Option(help="Whose way of preparing chats: sglang or vllm.")] = (
        "sglang"
    )
    media_tokens: Annotated[
        int, typer.Option(help="Tokens that a picture, a sound or a file counts as.")
    ] = 1024
    length: Annotated[
        str | None, typer.Option(help="Column of prompt tokens, for logs of lengths.")
    ] = None
    output_length: Annotated[
        str | None, typer.Option(help="Column of output tokens, for logs of lengths.")
    ] = None
    time_unit: Annotated[
        str | None, typer.Option(help="Unit of times: s, ms, us or ns; by default as they look.")
    ] = None
    ignore_field: Annotated[
        list[str] | None, typer.Option(help="Field whose text is not part of a prompt; repeatable.")
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of the text, such as latin-1; by default UTF-8.")
    ] = None

    @property
    def name(self) -> str:
        """The files, for people."""
        more = len(self.files) - 1
        return Path(self.files[0]).name + (f" and {more} more" if more else "")

    def read(self) -> "tuple[StoredLog, RequestLog]":
        """The log as it is, and in the order of `--order`; reports how it was read."""
        from radixkv.lab.logs.reading import read_log
        from radixkv.lab.logs.requests import in_order

        size = sum(Path(each).stat().st_size for each in self.files if Path(each).is_file())
        with bar(f"reading {self.name}", size) as progress:
            log = read_log(self.files, self._reading(), progress=progress)
        self._report(log)
        return log, in_order(log, self.order)

    def read_contents(self) -> "tuple[StoredLog, RequestLog]":
        """As `read`. Raises InvalidLogError for a log of lengths alone, which has no hit rates."""
        log, ordered = self.read()
        if not log.about.has_contents:
            raise InvalidLogError(
                f"{self.name} has lengths and no contents: hit rates cannot be measured; "
                "`radixkv lab replay` gives its sizes, times and concurrency",
                path=self.name,
            )
        return log, ordered

    def _reading(self) -> "Reading":
        from radixkv.lab.logs.reading import Reading

        return Reading(
            format=self.format,
            tokenizer=self.tokenizer,
            chat_template=self.chat_template,
            session=self.session,
            namespace=self.namespace,
            skip_bad=self.skip_bad,
            engine=self.engine,
            media_tokens=self.media_tokens,
            length=self.length,
            output_length=self.output_length,
            time_unit=self.time_unit,
            ignored=tuple(self.ignore_field or ()),
            encoding=self.encoding,
        )

    def _report(self, log: "StoredLog") -> None:
        for note in filter(None, (log.about.how_read(len(log)), log.about.left_out())):
            print(f"radixkv: {self.name}: {note}", file=sys.stderr)


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """A cache and the way requests go through it."""

    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1
    capacity: Annotated[int | None, typer.Option(help="Tokens of room; by default all fit.")] = None
    policy: Annotated[str, typer.Option(help="What is evicted first.")] = "lru"
    outputs: Annotated[bool, typer.Option("--outputs", help="Answers are cached too.")] = False
    in_flight: Annotated[int, typer.Option(help="Requests that run at a time.")] = 1
    scheduling: Annotated[
        str, typer.Option(help="Which waiting request is admitted next: arrival or longest-match.")
    ] = "arrival"
    capacity_of: Annotated[
        str,
        typer.Option(
            help="pool: requests in flight are in it, and wait for room; cache: it is what is kept "
            "besides them, as published tables count."
        ),
    ] = "pool"

    def setting(self) -> "Setting":
        """The setting of a replay. Raises InvalidArgumentError."""
        from radixkv.lab.replay.scheduling import scheduling_named
        from radixkv.lab.replay.setting import Setting

        return Setting(
            page_size=self.page_size,
            capacity=self.capacity,
            policy=self.policy,
            outputs=self.outputs,
            in_flight=self.in_flight,
            scheduling=scheduling_named(self.scheduling),
            capacity_of=self.capacity_of,
        )


@dataclass(frozen=True, slots=True)
class PrefillOptions:
    """The model whose prefill is counted."""

    model: Annotated[
        str | None, typer.Option(help="Model whose prefill is counted: a name or a config.json.")
    ] = None
    tflops: Annotated[
        float, typer.Option(min=1e-6, help="10^12 operations a second that it sustains.")
    ] = 400
    dtype: Annotated[
        str | None, typer.Option(help="Type of K and V, such as fp8; by default the model's.")
    ] = None
    tp: Annotated[int, typer.Option(min=1, help="GPUs that divide the KV heads.")] = 1

    def serving(self) -> "Serving | None":
        """The model as it is served. Raises InvalidArgumentError."""
        from radixkv.lab.report.advice import Serving
        from radixkv.memory.plan import dtype_named

        shape = self.shape()
        if shape is None:
            return None
        return Serving(shape, dtype_named(self.dtype or shape.dtype), self.tflops, self.tp)

    def shape(self) -> "ModelShape | None":
        """Raises InvalidArgumentError."""
        from radixkv.lab.replay.models import shape_named

        return None if self.model is None else shape_named(self.model)


@dataclass(frozen=True, slots=True)
class CardOptions:
    """How long the steps of an engine take: a card that was measured, or a file."""

    card: Annotated[
        str | None, typer.Option(help="Card whose measured rates are taken, such as h200.")
    ] = None
    rates: Annotated[
        Path | None,
        typer.Option(help="JSON of how long steps take on a card: step_ms, prefill_us ..."),
    ] = None

    def read(self) -> "Rates | None":
        """The rates; None where no option names any. Raises InvalidArgumentError."""
        from radixkv.lab.replay.rates import rates_of, read_rates

        if self.card is not None and self.rates is not None:
            raise InvalidArgumentError("give --card or --rates; got both")
        if self.card is not None:
            return rates_of(self.card)
        return read_rates(self.rates) if self.rates is not None else None


Target = Annotated[
    float | None, typer.Option(help="Hit rate to reach, in percent; by default 90 % of infinite.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default one a core.")]


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal's standard error; nothing elsewhere."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task(escape(title), total=total or None)
        yield lambda done: progress.update(task, completed=done)


def run(log: "RequestLog", setting: "Setting") -> "Replay":
    """The replay, with a bar."""
    from radixkv.lab.replay import replay

    with bar("replaying", len(log)) as progress:
        return replay.replay(log, setting, progress=progress)


def capacities(words: str) -> list[int | None]:
    """Capacities separated by commas; `inf` keeps all. Raises InvalidArgumentError."""
    return [_capacity(word) for word in names(words)]


def finite_capacities(words: str) -> list[int]:
    """Those of `capacities` that are numbers, one at least. Raises InvalidArgumentError."""
    from radixkv.lab.replay.setting import Setting

    found = [each for each in capacities(words) if each is not None]
    if not found:
        raise InvalidArgumentError(f"--capacities must have a number of tokens; got {words!r}")
    for each in found:
        Setting(capacity=each)  # checks it
    return found


def names(words: str) -> list[str]:
    """Names separated by commas."""
    return [word.strip() for word in words.split(",")]


def numbers(words: str, option: str) -> list[int]:
    """Whole numbers separated by commas. Raises InvalidArgumentError."""
    for word in names(words):
        if not word.isdecimal():
            raise InvalidArgumentError(f"{option} must be numbers such as 1,16,64; got {words!r}")
    return [*map(int, names(words))]


def _capacity(word: str) -> int | None:
    if word == "inf":
        return None
    try:
        number = int(word)
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidArgumentError(
            f"capacity must be tokens, as in 4096,65536,inf; got {word!r}", capacity=word
        )
    return number
