"""Log lines without addresses, for people or as JSON.

gunicorn writes the caller's address when a request cannot be parsed, together with what could not be parsed. Neither
belongs into a log (invariant P5), so such a line is replaced, and any address elsewhere is masked, tracebacks
included. The one line that keeps its address is the one that says where the server listens.
"""

import logging
from typing import Any, Final

from dither_protocol import log_lines
from dither_protocol.log_lines import mask_addresses

_LISTENING: Final = "Listening at: "
_INVALID: Final = "Invalid request from ip="
_FAILED: Final = "Error handling request"


def clean_message(record: logging.LogRecord) -> str:
    """The message of a record, fit for a log."""
    message = record.getMessage()
    if message.startswith(_LISTENING):
        return message
    if message.startswith(_INVALID):
        return "a request that is not HTTP was refused"
    if message.startswith(_FAILED):
        message = message.partition("?")[0]  # a query may hold a token
    return mask_addresses(message)


class _Clean:
    """The message of a server's records."""

    def message(self, record: logging.LogRecord) -> str:
        """See `clean_message`."""
        return clean_message(record)


class HumanFormatter(_Clean, log_lines.HumanFormatter):
    """For people."""


class JsonFormatter(_Clean, log_lines.JsonFormatter):
    """One JSON object per line."""


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
