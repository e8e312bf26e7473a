"""The biggest reasons for misses, with the text at the place and what could be changed."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.lab.logs.tokenizing import Tokenizer
from radixkv.lab.report.misses import Miss, MissReport
from radixkv.lab.report.overlap import NOTHING, Overlap, overlap
from radixkv.pages import ceil_div

_BEFORE, _AFTER = 12, 24  # tokens shown around a place
_SAMPLES = 16  # misses of a finding that are compared with what they differ from
_WORTH_MOVING = 0.25  # of the tokens behind a difference, the same again
_LONGEST_DIFFERENCE = 64  # tokens, to be a date or an id
_SHARED_PART = 8  # tokens of a date or an id that two may share
_TIME = re.compile(r"\d{4}-\d\d|\d{1,2}:\d\d|\b\d{10,13}\b", re.ASCII)
_ID = re.compile(r"[0-9a-f]{8,}|[0-9a-f]{4}-[0-9a-f]{4}|\b(id|uuid|nonce|session)\b", re.I)


@dataclass(frozen=True, slots=True)
class MissFinding:
    """Misses of one kind.

    The largest of them is the example: tokens [start, end) of `request`, with the text before, at
    the place, and there in the request `other`, both named by `LoggedRequest.id`. requests_ago: the
    median distance to the other request. movable_tokens: about how many stand in an earlier request
    too, behind something else; movable_in: a request of which they do, and that earlier one.
    """

    cause: str
    tokens: int
    requests: int
    what: str
    request: int
    session: str
    start: int
    end: int
    other: int | None
    other_session: str | None
    requests_ago: float | None = None
    movable_tokens: int = 0
    movable_in: tuple[int, int] | None = None
    before: str = ""
    here: str = ""
    there: str = ""
    advice: str = ""


def findings(
    log: RequestLog, explained: MissReport, tokenizer: Tokenizer | None = None, most: int = 10
) -> list[MissFinding]:
    """The `most` biggest, the biggest first. Without a tokenizer, texts are token ids."""
    groups: defaultdict[tuple[object, ...], list[Miss]] = defaultdict(list)
    describer = _Describer(log, explained, tokenizer)
    for miss in explained.misses:
        groups[describer.kind(miss)].append(miss)
    biggest = sorted(groups.values(), key=lambda misses: -sum(miss.tokens for miss in misses))
    return [describer.describe(misses) for misses in biggest[:most]]


class _Describer:
    """Puts misses into words."""

    def __init__(self, log: RequestLog, explained: MissReport, tokenizer: Tokenizer | None) -> None:
        self._log, self._places = log, explained.places
        self._setting, self._tokenizer = explained.setting, tokenizer
        self._sessions = log.sessions[np.asarray(explained.places, np.int64)]

    def kind(self, miss: Miss) -> tuple[object, ...]:
        """Misses of one kind make one finding."""
        if miss.cause == "evicted":
            return ("evicted", self._pressure(miss))
        return (miss.cause, miss.branch) if miss.cause == "diverged" else (miss.cause,)

    def describe(self, misses: list[Miss]) -> MissFinding:
        example = max(misses, key=lambda miss: miss.tokens)
        distances = [miss.time - miss.other for miss in misses if miss.other is not None]
        mine = self._request(example.time)
        other = None if example.other is None else self._request(example.other)
        found = MissFinding(
            cause=example.cause,
            tokens=sum(miss.tokens for miss in misses),
            requests=len({miss.time for miss in misses}),
            what=self._what(example),
            request=mine.id,
            session=mine.session,
            start=example.start,
            end=example.end,
            other=other.id if other else None,
            other_session=other.session if other else None,
            requests_ago=median(distances) if distances else None,
            before=self._text(mine.token_ids[max(0, example.start - _BEFORE) : example.start]),
            here=self._text(mine.token_ids[example.start : example.end][:_AFTER]),
            there=self._there(example),
            advice=self._advice(example),
        )
        return self._with_difference(found, misses) if self._may_move(example) else found

    # ---- words ----

    def _pressure(self, miss: Miss) -> str:
        assert miss.other is not None
        if miss.is_own:
            length, room = self._log.lengths[self._places[miss.other]], self._setting.capacity
            if room is not None and length > room:
                return "by the rest of its own prompt, which is longer than the room"
            return "as it came, since the policy kept others"
        is_same = self._sessions[miss.time] == self._sessions[miss.other]
        return "by requests of its own session" if is_same else "by requests of other sessions"

    def _what(self, miss: Miss) -> str:
        if miss.cause == "evicted":
            return f"evicted {self._pressure(miss)}"
        return {
            "page": f"seen before, but no whole page of {self._setting.page_size}",
            "elsewhere": "seen before in another namespace",
            "answer": "the answer to an earlier request, which "
            + ("was still running" if self._setting.outputs else "is not cached"),
            "diverged": f"behind a difference at token {miss.start:,}",
            "appended": "new text behind the whole of an earlier prompt",
            "new": "a prompt that begins like no other before it",
            "last": "the last token, always computed",
            "refused": "requests that are longer than the pool",
        }[miss.cause]

    def _advice(self, miss: Miss) -> str:
        return {
            "evicted": "more room, or admission by longest match",
            "page": "a smaller page size",
            "elsewhere": "namespaces that may share, if their tenants trust one another",
            "answer": "" if self._setting.outputs else "cache outputs too",
            "refused": "a pool that holds the longest request",
        }.get(miss.cause, "")

    def _there(self, miss: Miss) -> str:
        if miss.cause != "diverged" or miss.other is None:
            return ""
        path = self._path(miss.other)
        return self._text(path[miss.start : miss.start + _AFTER])

    def _text(self, token_ids: Int32Array) -> str:
        if self._tokenizer is None:
            return " ".join(map(str, token_ids.tolist()))
        return self._tokenizer.decode(token_ids)

    # ---- what could be moved ----

    def _may_move(self, miss: Miss) -> bool:
        return miss.cause in ("diverged", "new")

    def _with_difference(self, found: MissFinding, misses: list[Miss]) -> MissFinding:
        chosen = misses[:: ceil_div(len(misses), _SAMPLES)]
        shared = {miss: self._most_alike(miss) for miss in chosen}
        share = sum(each.tokens for each, _ in shared.values()) / sum(
            miss.tokens for miss in chosen
        )
        found = replace(found, movable_tokens=round(share * found.tokens))
        if share < _WORTH_MOVING:
            return found
        most = max(chosen, key=lambda miss: shared[miss][0].tokens)
        alike = self._request(most.time).id, self._request(shared[most][1]).id
        return replace(found, movable_in=alike, advice=self._how_to_move(most, *shared[most]))

    def _how_to_move(self, miss: Miss, shared: Overlap, other: int) -> str:
        if shared.is_reordered:
            return "the same parts come in another order: sort them (tools, documents, examples)"
        differ = [
            self._difference(miss.time, miss.start, shared.mine_resumes),
            self._difference(other, miss.start, shared.other_resumes),
        ]
        if all(_TIME.search(each) for each in differ):
            return "a date or time stands before text that stays the same: put it last"
        if all(_ID.search(each) for each in differ):
            return "an id stands before text that stays the same: put it last, or leave it out"
        return "the same text stands behind what differs: put what differs last"

    def _difference(self, time: int, start: int, length: int) -> str:
        """What differs as text, with the few tokens before it that it may share; "" if long."""
        if self._tokenizer is None or length > _LONGEST_DIFFERENCE:
            return ""
        return self._text(self._tokens(time)[max(0, start - _SHARED_PART) : start + length])

    def _most_alike(self, miss: Miss) -> tuple[Overlap, int]:
        """With the request it parts from, the one before, or the one before in its session."""
        mine = self._tokens(miss.time)[miss.start : miss.end]
        found = [
            (overlap(mine, self._tokens(each)[miss.start :]), each) for each in self._likely(miss)
        ]
        return max(found, key=lambda each: each[0].tokens, default=(NOTHING, 0))

    def _likely(self, miss: Miss) -> Iterable[int]:
        earlier = np.flatnonzero(self._sessions[: miss.time] == self._sessions[miss.time])
        likely = {miss.other, miss.time - 1, *earlier[-1:].tolist()}
        return sorted(each for each in likely if each is not None and each >= 0)

    def _tokens(self, time: int) -> Int32Array:
        return self._request(time).token_ids

    def _path(self, time: int) -> Int32Array:
        """The tokens that the cache was shown of it."""
        request = self._request(time)
        outputs = request.outputs[:1] if self._setting.outputs else ()
        return np.concatenate([request.token_ids, *outputs])

    def _request(self, time: int) -> LoggedRequest:
        return self._log.request(self._places[time])
