"""What the namespaces of one salt may count on in a cache that others use too.

    reserve   what is cached of it is not evicted for others, up to so many tokens
    cap       most that is kept of it; what goes beyond it evicts its own first

A share is of a salt: adapters, extra keys and weight versions of one tenant use it together, and a
token of the service's tokens file that is bound to the salt can name no other. What is cached
counts, locked or not. Slots in use, of running requests or on loan, count for neither: leave room
for them beside the reserves. No request may need more slots than the reserves of others leave.
Namespaces without a share have no reserve and no cap.

Each share has an order of eviction of its own. Where several may give, the victim goes that the
policy prefers of their first ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from radixkv.arguments import between
from radixkv.errors import InvalidArgumentError
from radixkv.pages import round_down, round_up

MOST_SHARES = 65_000
MOST_TOKENS = 2**62


@dataclass(frozen=True, slots=True)
class Share:
    """Of one salt, in tokens. cap: None: no bound. Raises InvalidArgumentError."""

    reserve: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        between(0, MOST_TOKENS, reserve=self.reserve)
        if self.cap is not None:
            between(0, MOST_TOKENS, cap=self.cap)
            if self.cap < self.reserve:
                raise InvalidArgumentError(
                    f"cap must be at least the reserve, {self.reserve}; got {self.cap}"
                )


# By salt; None: the namespaces without one.
Shares: TypeAlias = Mapping[str | None, Share]
NO_SHARES: Shares = {}


class WholeShare(NamedTuple):
    """A share in whole pages."""

    salt: str | None
    reserve: int
    cap: int | None


class ShareSizes(NamedTuple):
    """What is cached of a share now, in tokens."""

    evictable: int = 0
    protected: int = 0


def in_pages(shares: Shares, page_size: int) -> list[WholeShare]:
    """The shares in whole pages: reserves rounded up, caps rounded down.

    Raises InvalidArgumentError for what is not a mapping of salts to `Share`.
    """
    if not isinstance(shares, Mapping) or len(shares) > MOST_SHARES:
        raise InvalidArgumentError(
            f"shares must be a mapping of at most {MOST_SHARES} salts to Share; got {shares!r}"
        )
    whole = []
    for salt, share in shares.items():
        if not isinstance(salt, str | None) or not isinstance(share, Share):
            raise InvalidArgumentError(
                f"shares must be a mapping of salts to Share; got {salt!r}: {share!r}"
            )
        cap = None if share.cap is None else round_down(share.cap, page_size)
        whole.append(WholeShare(salt, round_up(share.reserve, page_size), cap))
    return whole


def reserves(shares: Shares, page_size: int) -> dict[str | None, int]:
    """The reserve of each salt, in whole pages."""
    return {share.salt: share.reserve for share in in_pages(shares, page_size)}


def check_fit(shares: Shares, page_size: int, most: int) -> None:
    """Raises InvalidArgumentError unless the reserves together fit `most` tokens."""
    reserved = sum(reserves(shares, page_size).values())
    if reserved > most:
        raise InvalidArgumentError(
            f"reserves together must be at most {most}, what the cache may hold; got {reserved}",
            reserved=reserved,
            most=most,
        )
