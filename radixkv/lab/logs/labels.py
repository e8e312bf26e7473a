"""Whose a request is and when it came: fields that every log format may have."""

from dataclasses import dataclass

from radixkv.lab.logs import fields
from radixkv.lab.logs.fields import Row
from radixkv.lab.logs.records import Record

TIMES = ("ts", "timestamp", "TIMESTAMP", "time", "arrived_at", "created", "created_at")
_SESSIONS = ("session", "session_id", "conversation_id", "chat_id")


@dataclass(frozen=True, slots=True)
class LabelFields:
    """The fields of session and namespace; None: the usual names, and no namespace."""

    session: str | None = None
    namespace: str | None = None

    def add_to(self, record: Record, row: Row) -> Record:
        """Fill in what the record's format has not. Raises FieldError."""
        session = self.session or fields.first_of(row, *_SESSIONS)
        record.session = fields.label(row, session)
        if record.ts is None:
            record.ts = fields.seconds(row, fields.first_of(row, *TIMES))
        record.namespace = fields.label(row, self.namespace)
        return record
