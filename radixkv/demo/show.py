"""What the demo prints."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from radixkv.cache.stats import CacheStats
from radixkv.demo.chats import Chat
from radixkv.demo.serving import Served
from radixkv.service import ServerInfo, ServerStats


def opening(console: Console, chats: list[Chat], info: ServerInfo, address: str) -> None:
    """What is about to happen."""
    console.print(
        f"SmolLM2-135M-Instruct, float32, on this CPU: {len(chats)} chats of "
        f"{len(chats[0].says)} turns under two system prompts, all at once.\n"
        f"Cache: {info.num_slots:,} slots, page size {info.page_size}, {info.core} core; it "
        f"answers gRPC at {address} while the model runs.\n"
    )


def turn(console: Console, number: int, chats: list[Chat], served: list[Served]) -> None:
    """One row a chat: tokens asked about, cached, computed; first token and text both ways."""
    title = f"Turn {number + 1}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("chat")
    for name in ("prompt", "held\n(gRPC)", "cached", "computed"):
        table.add_column(name, justify="right")
    table.add_column("first token\nwith cache", justify="right")
    table.add_column("without", justify="right")
    table.add_column("text")
    for chat, each in zip(chats, served, strict=True):
        table.add_row(*_row(chat, each))
    console.print(table)
    for chat in chats:
        answer = " ".join(chat.messages[-1]["content"].split())
        console.print(f"  {chat.name}: {answer}", no_wrap=True, overflow="ellipsis", style="dim")
    console.print()


def _row(chat: Chat, each: Served) -> tuple[str, ...]:
    numbers = each.with_cache.numbers
    return (
        chat.name,
        str(numbers.prompt_tokens),
        str(each.held),
        f"[green]{numbers.cached_tokens}[/green]",
        str(numbers.computed_tokens),
        f"{_first_token_s(each.with_cache.numbers.time_to_first_token_s):.2f} s",
        f"{_first_token_s(each.without.numbers.time_to_first_token_s):.2f} s",
        "equal" if each.is_equal else "[red]DIFFERS[/red]",
    )


def answers(console: Console, length: int, everyone: int, tenant: int) -> None:
    """How much of a new prompt the service holds."""
    console.print(
        f"A router asks about a new chat of {length} tokens: {everyone} are held "
        f"(for another tenant: {tenant}).\n"
    )


def totals(console: Console, served: list[Served], cache: CacheStats, asked: ServerStats) -> None:
    """The sums, from the engine and from the service."""
    table = Table(title="Totals", title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    computed = sum(each.with_cache.numbers.computed_tokens for each in served)
    rows = {
        "prompt tokens": cache.prompt_tokens,
        "served from cache": cache.cached_tokens,
        "computed with the cache": computed,
        "computed without": sum(each.without.numbers.computed_tokens for each in served),
        "tokens cached now (over gRPC)": asked.evictable_size + asked.protected_size,
        "slots free now (over gRPC)": asked.free_slots,
    }
    for name, value in rows.items():
        table.add_row(name, f"{value:,}")
    console.print(table)


def speed_up(each: Served) -> float:
    """How many times sooner the first token came with the cache."""
    without = _first_token_s(each.without.numbers.time_to_first_token_s)
    return without / _first_token_s(each.with_cache.numbers.time_to_first_token_s)


def _first_token_s(seconds: float | None) -> float:
    assert seconds is not None, "every answer of the demo has a token"
    return seconds
