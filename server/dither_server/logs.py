"""Log lines without addresses, for people or as JSON.

gunicorn writes the caller's address when a request cannot be parsed, together with what could not be parsed. Neither
belongs into a log (invariant P5), so such a line is replaced, and any address elsewhere is masked, tracebacks
included. The one line that keeps its address is the one that says where the server listens.
"""

import ipaddress
import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

_LISTENING: Final = "Listening at: "
_INVALID: Final = "Invalid request from ip="
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


def clean_message(record: logging.LogRecord) -> str:
    """The message of a record, fit for a log."""
    message = record.getMessage()
    if message.startswith(_LISTENING):
        return message
    if message.startswith(_INVALID):
        return "a request that is not HTTP was refused"
    return mask_addresses(message)


class HumanFormatter(logging.Formatter):
    """``2026-11-29 13:05:00Z INFO gunicorn.error: message``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it."""
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        line = f"{when} {record.levelname} {record.name}: {clean_message(record)}"
        traceback = self._traceback(record)
        return f"{line}\n{traceback}" if traceback else line

    def _traceback(self, record: logging.LogRecord) -> str:
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
            "message": clean_message(record),
        }
        if record.exc_info:
            document["traceback"] = self._traceback(record)
        return json.dumps(document, ensure_ascii=True)


def log_config(style: str) -> dict[str, Any]:
    """What `logging.config.dictConfig` and gunicorn's ``logconfig_dict`` take.

    Args:
        style: ``human`` or ``json``.
    """
    formatter = {"human": HumanFormatter, "json": JsonFormatter}[style]
    quiet = {"level": "INFO", "handlers": [], "propagate": True}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"clean": {"()": formatter}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "clean", "stream": "ext://sys.stderr"}
        },
        "root": {"level": "INFO", "handlers": ["stderr"]},
        "loggers": {"gunicorn.error": quiet, "gunicorn.access": quiet},
    }
