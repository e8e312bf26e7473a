"""The session and namespace of a request, and its time: fields that every log format may have."""

from dataclasses import dataclass, field

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.records import Record
from radixkv.prompts import fields
from radixkv.prompts.fields import Row

TIMES = ("ts", "timestamp", "TIMESTAMP", "Timestamp", "time", "arrived_at", "arrival_time",
         "created", "created_at", "startTime", "start_time", "request.ts", "request.created",
         "request.timestamp", "body.ts", "body.created", "metadata.request_start_ns",
         "info.timings.request_start")  # fmt: skip
_SESSIONS = ("session", "session_id", "Session ID", "conversation_id", "chat_id", "thread_id",
             "metadata.session_id", "metadata.conversation_id", "info.conversation_id")  # fmt: skip


def time_of(row: Row, unit: str | None) -> float | None:
    """Seconds; None where the row has no time. Raises FieldError."""
    return fields.seconds(row, fields.first_of(row, *TIMES), unit)


@dataclass(slots=True)
class Labels:
    """Sessions, namespaces and times of the rows of one log.

    session, namespace: fields; None: the usual names, and no namespace. found: how many rows had
    each of the fields that were named.
    """

    session: str | None = None
    namespace: str | None = None
    time_unit: str | None = None
    found: dict[str, int] = field(default_factory=dict)

    def add_to(self, record: Record, row: Row) -> Record:
        """Fill in what the record's format has not. Raises FieldError."""
        if self.session is not None or record.session is None:
            session = self.session or fields.first_of(row, *_SESSIONS)
            record.session = fields.label(row, session)
        if record.ts is None:
            record.ts = time_of(row, self.time_unit)
        record.namespace = fields.label(row, self.namespace)
        for name in filter(None, (self.session, self.namespace)):
            has_it = fields.find(row, name) is not None
            self.found[name] = self.found.get(name, 0) + has_it
        return record

    def check(self) -> None:
        """Raises InvalidArgumentError for a field that no row had."""
        for name, count in self.found.items():
            if not count:
                raise InvalidArgumentError(
                    f"a label must be a field of some line; got {name!r}, which no line has",
                    field=name,
                )
