"""Log lines of every process: one format, to standard error. Nothing that was said is ever logged.

A record may carry `extra={"fields": {...}}`: JSON lines hold these beside the message.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, the record's fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def formatter(log_format: str) -> logging.Formatter:
    """Return the formatter of `text` or `json`."""
    return JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT)


def configure(level: str, log_format: str = "text") -> None:
    """Set the root logger's level and format, `text` or `json`."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(log_format))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
