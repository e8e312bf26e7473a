"""Tokenized logs on disk: read where they lie, so that memory holds what is looked at.

A log is a folder of `values.i32`, the tokens of all segments, `index.npz`, which says where they
lie, and `about.json`. A segment is a prompt or an output; each of its values stands for
`block_size` tokens, but for the last, which ends with the segment. The segments of a request are
next to each other in the index, and anywhere in the values: an output may come to be known late.

    request        0                          1
    segment        0 prompt   1 output        2 prompt ...
    values         7 7 9      4               7 8 ...
"""

import json
from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.atomic_files import PartialFolder, remove, sync
from radixkv.errors import InvalidLogError
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.tree import DEFAULT, Namespace

_DAMAGES = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, BadZipFile)


@dataclass(slots=True)
class About:
    """What is known of a log besides its requests.

    block_size: tokens that a value stands for. pads_last_block: whether the last block of a prompt
    takes the room of a whole one, as in a cache of blocks. has_contents: whether prompts can be
    compared.
    template: where the chat template comes from; empty where there are no chats. media: pictures,
    sounds and files, each of `media_tokens` tokens.
    answered, answered_by_next: requests whose answer stands with them, and in a later request.
    skipped: bad lines that were left out; skipped_share: their part of the text, 0 to 1; reasons:
    how many for which reason; first_bad: what was wrong with the first few. is_cut: whether the
    file ended early.
    """

    format: str
    block_size: int = 1
    pads_last_block: bool = False
    has_contents: bool = True
    template: str = ""
    media: int = 0
    media_tokens: int = 0
    answered: int = 0
    answered_by_next: int = 0
    skipped: int = 0
    skipped_share: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    first_bad: tuple[str, ...] = ()
    is_cut: bool = False

    def left_out(self) -> str:
        """What is not in the log that was in the file; empty if all is."""
        bad = ""
        if self.skipped:
            counted = ", ".join(f"{count:,} x {each}" for each, count in self.reasons.items())
            bad = (
                f"left out {self.skipped:,} bad lines, {self.skipped_share:.1%} of the text "
                f"({counted}), first {self.first_bad[0]}"
            )
        return "; ".join(filter(None, [bad, "the file is cut" if self.is_cut else ""]))

    def how_read(self, requests: int) -> str:
        """The format, the template, and what stands for what, in words."""
        parts = [f"read as {self.format}"]
        if self.template:
            parts.append(f"template: {self.template}")
        if self.media:
            parts.append(
                f"{self.media:,} pictures, sounds and files counted as {self.media_tokens:,} "
                "tokens each"
            )
        if self.has_contents:
            parts.append(self._answers(requests))
        return "; ".join(parts)

    def _answers(self, requests: int) -> str:
        known = self.answered + self.answered_by_next
        later = f", {self.answered_by_next:,} of them from later requests"
        return f"{known:,} of {requests:,} requests have answers" + later * bool(
            self.answered_by_next
        )


class StoredLog(RequestLog):
    """A log that `Writer` wrote into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = json.loads((folder / "about.json").read_text("utf-8"))
        self.about = About(**kept["about"])
        self.session_names: list[str | None] = kept["sessions"]
        self.namespaces = [DEFAULT, *(Namespace(salt=salt) for salt in kept["namespaces"])]
        with (folder / "index.npz").open("rb") as file, np.load(file) as index:
            self.sessions, self.turns = index["sessions"], index["turns"]
            self.times, self._namespaces = index["times"], index["namespaces"]
            self._first_segment, self._lengths = index["first_segment"], index["lengths"]
            self._starts, self._ends = index["starts"], index["ends"]
        self._check_sizes()
        self.lengths = self._lengths[self._first_segment[:-1]]
        self.output_lengths = self._first_outputs()
        self.max_padding = self.about.block_size - 1 if self.about.pads_last_block else 0
        self.num_namespaces = len(np.unique(self._namespaces))
        self._map()

    def request(self, at: int) -> LoggedRequest:
        segments = range(*self._first_segment[at : at + 2].tolist())
        prompt = self._prompt(segments[0])
        padding = len(prompt) - int(self.lengths[at])
        time, session = float(self.times[at]), int(self.sessions[at])
        return LoggedRequest(
            id=at,
            session=self.session_names[session] or f"request {at}",
            turn=int(self.turns[at]),
            ts=None if np.isnan(time) else time,
            token_ids=prompt,
            outputs=tuple(map(self._tokens, segments[1:])),
            namespace=self.namespaces[self._namespaces[at]],
            padding=padding,
        )

    def _prompt(self, segment: int) -> Int32Array:
        if self.about.pads_last_block:
            return np.repeat(self._values_of(segment), self.about.block_size)
        return self._tokens(segment)

    def _tokens(self, segment: int) -> Int32Array:
        values, length = self._values_of(segment), int(self._lengths[segment])
        if self.about.block_size == 1:
            return values
        return np.repeat(values, min(self.about.block_size, length))[:length]

    def _values_of(self, segment: int) -> Int32Array:
        return self._values[int(self._starts[segment]) : int(self._ends[segment])]

    def _first_outputs(self) -> NDArray[np.int64]:
        first, ends = self._first_segment[:-1] + 1, self._first_segment[1:]
        padded = np.append(self._lengths, 0)
        return np.where(first < ends, padded[first], 0)

    def _check_sizes(self) -> None:
        """Raises ValueError for files that do not belong together."""
        num_requests, num_segments = len(self._first_segment) - 1, int(self._first_segment[-1])
        sizes = {
            *map(len, (self.sessions, self.turns, self.times, self._namespaces)),
            num_requests,
        }
        if len(sizes) > 1 or {*map(len, (self._lengths, self._starts, self._ends))} != {
            num_segments
        }:
            raise ValueError("the arrays of index.npz must be equally long")
        if self.sessions.max(initial=0) >= len(self.session_names):
            raise ValueError("about.json has too few sessions")
        if self._namespaces.max(initial=0) >= len(self.namespaces):
            raise ValueError("about.json has too few namespaces")
        size, expected = (
            (self.folder / "values.i32").stat().st_size,
            4 * int(self._ends.max(initial=0)),
        )
        if size != expected:
            raise ValueError(f"values.i32 has {size:,} bytes of {expected:,}")

    def _map(self) -> None:
        path = self.folder / "values.i32"
        is_empty = not path.stat().st_size
        values = np.empty(0, "<i4") if is_empty else np.memmap(path, "<i4", mode="r")
        self._values: Int32Array = np.asarray(values)

    # What a process hands to another is where the log lies.
    def __reduce__(self) -> tuple[type["StoredLog"], tuple[Path]]:
        return StoredLog, (self.folder,)


class Writer:
    """Collects requests in a folder next to `folder`, and makes it `folder` when all are there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._partial = folder, PartialFolder(folder)
        self._values = (self._partial.path / "values.i32").open("wb")
        self._num_values = 0
        self._sessions: dict[str, int] = {}
        self._session_names: list[str | None] = []
        self._namespaces: dict[str, int] = {}
        self._turn_counts = array("q")
        self._times = array("d")
        self._of_requests = {name: array("q") for name in ("sessions", "turns", "namespaces")}
        self._of_segments = {name: array("q") for name in ("request", "lengths", "ends")}

    def __len__(self) -> int:
        return len(self._times)

    def add(
        self,
        segments: Iterable[tuple[Int32Array, int]],
        *,
        session: str | None,
        ts: float | None,
        namespace: str | None,
    ) -> None:
        """One request: values and length of its prompt, then of its outputs."""
        for values, length in segments:
            self._append(len(self), values, length)
        columns, number = self._of_requests, self._session(session)
        columns["sessions"].append(number)
        columns["turns"].append(self._turn_counts[number])
        self._turn_counts[number] += 1
        self._times.append(np.nan if ts is None else ts)
        # 0 is the default namespace.
        known = self._namespaces
        columns["namespaces"].append(
            0 if namespace is None else known.setdefault(namespace, len(known) + 1)
        )

    def add_output(self, request: int, values: Int32Array, length: int) -> None:
        """One more output of an earlier request."""
        assert 0 <= request < len(self)
        self._append(request, values, length)

    def _append(self, request: int, values: Int32Array, length: int) -> None:
        self._values.write(np.ascontiguousarray(values, "<i4").tobytes())
        self._num_values += len(values)
        for name, value in (("request", request), ("lengths", length), ("ends", self._num_values)):
            self._of_segments[name].append(value)

    def _segments(self) -> dict[str, NDArray[np.int64]]:
        """The index of all segments, those of a request next to each other."""
        request, lengths, ends = (np.array(each, np.int64) for each in self._of_segments.values())
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        order = np.argsort(request, kind="stable")
        counts = np.bincount(request, minlength=len(self))
        return {
            "first_segment": np.concatenate([[0], np.cumsum(counts)]),
            "lengths": lengths[order],
            "starts": starts[order],
            "ends": ends[order],
        }

    def finish(self, about: About) -> StoredLog:
        """All are there."""
        sync(self._values)
        self._values.close()
        arrays = {name: np.array(column) for name, column in self._of_requests.items()}
        arrays |= self._segments()
        with (self._partial.path / "index.npz").open("wb") as file:
            np.savez(file, allow_pickle=False, times=self._times, **arrays)
            sync(file)
        kept = {
            "about": asdict(about),
            "sessions": self._session_names,
            "namespaces": [*self._namespaces],
        }
        with (self._partial.path / "about.json").open("wb") as file:
            file.write(json.dumps(kept).encode())
            sync(file)
        return self._in_place()

    def abandon(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):  # a full disk
            self._values.close()
        self._partial.remove()

    def _in_place(self) -> StoredLog:
        """What someone else wrote meanwhile is as good; what is damaged goes."""
        with suppress(OSError):  # something is there
            self._partial.move()
            return open_stored(self._folder)
        try:
            found = open_stored(self._folder)
        except InvalidLogError:
            remove(self._folder)
            self._partial.move()
            return open_stored(self._folder)
        self._partial.remove()
        return found

    def _session(self, name: str | None) -> int:
        known = None if name is None else self._sessions.get(name)
        if known is not None:
            return known
        number = len(self._session_names)
        self._session_names.append(name)
        self._turn_counts.append(0)
        if name is not None:
            self._sessions[name] = number
        return number


def open_stored(folder: Path) -> StoredLog:
    """The log in `folder`. Raises InvalidLogError where it is damaged."""
    try:
        return StoredLog(folder)
    except _DAMAGES as error:
        raise InvalidLogError(
            f"{folder} holds no tokenized log: {error}", path=str(folder)
        ) from error
