"""The service's log as JSON, a line each: what a call failed with, never what was in it."""

import json
import logging
from datetime import UTC, datetime

_FIELDS = ("method", "code", "reason", "caller", "request_id", "peer", "ms")


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, and the fields of a failed call."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in _FIELDS if hasattr(record, name)},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_json(level: int = logging.INFO) -> None:
    """Write the log of radixkv to standard error as JSON, and nowhere else."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("radixkv")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
