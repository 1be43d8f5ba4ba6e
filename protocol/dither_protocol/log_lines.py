"""Log lines of every process of a service: for people or as JSON, without addresses.

An address in a log is a list of who was there when (invariant P5), so each one is masked, in tracebacks too.
"""

import ipaddress
import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_CANDIDATE: Final = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)(?![\w])"
)


def mask_addresses(text: str) -> str:
    """``text`` with each IPv4 and IPv6 address replaced by ``<address>``."""

    def mask(found: re.Match[str]) -> str:
        candidate = found.group().rstrip(".:") if not found.group().endswith("::") else found.group()
        try:
            ipaddress.ip_address(candidate)
        except ValueError:
            return found.group()
        return "<address>" + found.group()[len(candidate) :]

    return _CANDIDATE.sub(mask, text)


class HumanFormatter(logging.Formatter):
    """``2026-11-29 13:05:00Z INFO gunicorn.error: message``."""

    def message(self, record: logging.LogRecord) -> str:
        """The message of a record, fit for a log."""
        return mask_addresses(record.getMessage())

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it."""
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        line = f"{when} {record.levelname} {record.name}: {self.message(record)}"
        traceback = self.traceback(record)
        return f"{line}\n{traceback}" if traceback else line

    def traceback(self, record: logging.LogRecord) -> str:
        """The traceback of a record; empty where it has none."""
        return mask_addresses(self.formatException(record.exc_info)) if record.exc_info else ""


class JsonFormatter(HumanFormatter):
    """One JSON object per line: time, level, logger, process, message, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line without line breaks inside."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": self.message(record),
        }
        if record.exc_info:
            document["traceback"] = self.traceback(record)
        return json.dumps(document, ensure_ascii=True)


FORMATTERS: Final[Mapping[str, type[HumanFormatter]]] = {"human": HumanFormatter, "json": JsonFormatter}
"""By the value of ``DITHER_LOG``."""
