"""Capacity planning: what fits in a memory budget, and what each page size wastes."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError
from radixkv.memory.model import Layer, ModelShape
from radixkv.pages import round_up

# The dtypes of the KV pools.
DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1}
_DTYPE_NAMES = {"fp8": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "bf16": "bfloat16",
                "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32",
                "auto": "bfloat16"}  # fmt: skip
_B = ("", "b")  # as in 55G, 55GB, 55Gi and 55GiB
_UNITS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}{b}": 1000**power for power, letter in enumerate("kmgt", start=1) for b in _B},
    **{f"{letter}i{b}": 1024**power for power, letter in enumerate("kmgt", start=1) for b in _B},
}
COMPARED_PAGE_SIZES = (1, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class PageUse:
    """How much of the slots that a mix of lengths occupies at one page size holds a token."""

    page_size: int
    used_fraction: float
    wasted_tokens: int


@dataclass(frozen=True, slots=True)
class LengthMix:
    """What a mix of request lengths uses of its slots, reserved for the longest and paged."""

    count: int
    tokens: int
    reserved_used_fraction: float
    paged: tuple[PageUse, ...]


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a memory budget holds. Sizes are tokens unless the name says bytes.

    bytes_per_token: on each of `ranks`. window_bytes: the part of it that no query needs once
    `window` tokens have passed; a prefix cache keeps it nevertheless. state_layers: layers that
    keep a state for each request, which is not in these bytes.
    """

    bytes_per_token: int
    memory_bytes: int
    page_size: int
    context: int
    reserve: int
    num_slots: int
    requests_paged: int
    requests_reserved: int
    lengths: LengthMix | None
    dtype: str
    ranks: int = 1
    window: int | None = None
    window_bytes: int = 0
    state_layers: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, as `json.dumps` takes them."""
        return asdict(self)


def plan_capacity(
    *,
    layers: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    model: ModelShape | None = None,
    dtype: str | None = None,
    memory: int | str,
    context: int,
    reserve: int | None = None,
    page_size: int = 1,
    ranks: int = 1,
    lengths: Sequence[int] = (),
) -> CapacityPlan:
    """How many requests of `context` tokens fit in `memory`: paged, and each reserved `reserve`.

    model: instead of layers, kv_heads and head_dim, and for dtype where it is None. ranks: over
    how many GPUs K/V heads are divided; memory is that of one.
    Paged, one page of the memory is padding, as in the pools. `reserve` is the longest context, by
    default `context`. With `lengths`: what page sizes 1, 16, 64, 256 and `page_size` waste on them.
    memory: bytes, or text such as "55GiB".

    >>> plan = plan_capacity(layers=28, kv_heads=4, head_dim=128, dtype="bfloat16",
    ...                      memory="55GiB", context=3000, reserve=32768, page_size=16)
    >>> plan.bytes_per_token, plan.requests_paged, plan.requests_reserved
    (57344, 342, 31)
    """
    reserve = context if reserve is None else reserve
    _check_sizes(context, reserve, page_size)
    model = model or _plain_model(layers, kv_heads, head_dim)
    dtype = dtype_named(dtype or model.dtype)
    token_bytes = model.kv_values(ranks) * DTYPE_BYTES[dtype]
    memory_bytes = parse_memory(memory)
    num_slots = slots_that_fit(memory_bytes, token_bytes, page_size)
    compared = sorted({*COMPARED_PAGE_SIZES, page_size})
    return CapacityPlan(
        bytes_per_token=token_bytes,
        memory_bytes=memory_bytes,
        page_size=page_size,
        context=context,
        reserve=reserve,
        num_slots=num_slots,
        requests_paged=num_slots // round_up(context, page_size),
        requests_reserved=memory_bytes // (reserve * token_bytes),
        lengths=length_mix(lengths, reserve, compared) if len(lengths) else None,
        dtype=dtype,
        ranks=ranks,
        window=model.window,
        window_bytes=model.window_values(ranks) * DTYPE_BYTES[dtype],
        state_layers=model.count("state"),
    )


def _plain_model(layers: int | None, kv_heads: int | None, head_dim: int | None) -> ModelShape:
    sizes = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim}
    for name, value in sizes.items():
        if value is None:
            raise InvalidArgumentError(
                f"{name} must be given where no model is; got None", argument=name
            )
        _check_positive(**{name: value})
    assert layers is not None
    assert kv_heads is not None
    assert head_dim is not None
    return ModelShape("", (Layer("full", kv_heads, 2 * head_dim),) * layers)


def dtype_named(name: str) -> str:
    """A key of `DTYPE_BYTES`, also under its other names. Raises InvalidArgumentError."""
    found = _DTYPE_NAMES.get(name, name)
    if found not in DTYPE_BYTES:
        raise InvalidArgumentError(
            f"dtype must be one of {', '.join(DTYPE_BYTES)}; got {name!r}", dtype=name
        )
    return found


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, dtype: str) -> int:
    """Bytes of K and V that one token takes in all layers.

    >>> bytes_per_token(layers=28, kv_heads=4, head_dim=128, dtype="bfloat16")
    57344
    """
    values = _plain_model(layers, kv_heads, head_dim).kv_values()
    return values * DTYPE_BYTES[dtype_named(dtype)]


def parse_memory(memory: int | str) -> int:
    """Bytes in a size such as "55GiB" (1024s), "80GB" (1000s) or a plain number of bytes.

    >>> parse_memory("1.5 KiB"), parse_memory("2kB"), parse_memory(4096)
    (1536, 2000, 4096)
    """
    text = str(memory).strip()
    found = re.fullmatch(r"(\d{1,20})(?:\.(\d{1,20}))?\s*([a-z]*)", text.lower(), re.ASCII)
    if found is None or found[3] not in _UNITS:
        raise InvalidArgumentError(
            f"memory must be bytes, or a number and a unit, as in 55GiB or 80GB; got {text!r}",
            memory=text,
        )
    decimals = found[2] or ""
    # In whole numbers: floats lose bytes of large sizes.
    scale: int = 10 ** len(decimals)
    amount = int(found[1] + decimals) * _UNITS[found[3]] // scale
    _check_positive(memory=amount)
    return amount


def slots_that_fit(memory_bytes: int, token_bytes: int, page_size: int) -> int:
    """Slots, in whole pages, of a pool that takes `memory_bytes` with its padding page."""
    pages = memory_bytes // (token_bytes * page_size) - 1
    if pages < 1:
        raise InvalidArgumentError(
            f"memory must hold two pages (one is padding) at page size {page_size} and "
            f"{token_bytes} bytes a token; got {memory_bytes} bytes",
            memory_bytes=memory_bytes,
            page_size=page_size,
            token_bytes=token_bytes,
        )
    return pages * page_size


def length_mix(lengths: Sequence[int], reserve: int, page_sizes: Sequence[int]) -> LengthMix:
    """What a mix of request lengths uses of its slots: each reserved `reserve`, or in whole pages.

    >>> mix = length_mix([3, 5], reserve=8, page_sizes=[1, 4])
    >>> mix.reserved_used_fraction, [(use.page_size, use.wasted_tokens) for use in mix.paged]
    (0.5, [(1, 0), (4, 4)])
    """
    for length in lengths:
        _check_positive(length=length)
    longest = max(lengths, default=0)
    if not longest or longest > reserve:
        raise InvalidArgumentError(
            f"lengths must be from 1 to the reserve of {reserve} tokens; got {longest}",
            longest=longest,
            reserve=reserve,
        )
    tokens = sum(lengths)
    return LengthMix(
        count=len(lengths),
        tokens=tokens,
        reserved_used_fraction=tokens / (len(lengths) * reserve),
        paged=tuple(_page_use(lengths, tokens, page_size) for page_size in page_sizes),
    )


def _page_use(lengths: Sequence[int], tokens: int, page_size: int) -> PageUse:
    occupied = sum(round_up(length, page_size) for length in lengths)
    return PageUse(page_size, used_fraction=tokens / occupied, wasted_tokens=occupied - tokens)


def read_lengths(path: str | Path) -> list[int]:
    """Request lengths in a text file: ints separated by white space, commas or semicolons.

    Raises InvalidArgumentError, which names the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}", path=str(path)) from error
    lengths = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in re.split(r"[\s,;]+", line.strip()):
            if word and not word.isdecimal():
                raise InvalidArgumentError(
                    f"{path}, line {number}: a length must be an int, as 812; got {word[:40]!r}",
                    path=str(path),
                    line=number,
                )
            lengths += [int(word)] if word else []
    if not lengths:
        raise InvalidArgumentError(
            f"{path} must hold at least one length; got an empty file", path=str(path)
        )
    return lengths


def _check_sizes(context: int, reserve: int, page_size: int) -> None:
    _check_positive(context=context, reserve=reserve, page_size=page_size)
    if reserve < context:
        raise InvalidArgumentError(
            f"reserve must be at least the context of {context} tokens; got {reserve}",
            reserve=reserve,
            context=context,
        )


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        at_least(1, **{name: value})
