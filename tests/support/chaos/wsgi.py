"""The server's application with a clock that the harness sets: the time stands in a file.

gunicorn runs ``support.chaos.wsgi:create()``; CHAOS_CLOCK names the file.
"""

import os
import sys
from datetime import datetime
from pathlib import Path

from flask import Flask

from dither_server.app import APP_LOAD_ERROR, create_app
from dither_server.settings import ConfigurationError, Settings

CLOCK_VARIABLE = "CHAOS_CLOCK"


class FileClock:
    """Gives the time that stands in a file, ISO 8601 with its zone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> datetime:
        """The time that stands there now."""
        return datetime.fromisoformat(self._path.read_text())

    def set(self, now: datetime) -> None:
        """Step the clock. No reader ever sees half a time."""
        new = self._path.with_suffix(".new")
        new.write_text(now.isoformat())
        new.replace(self._path)


def create() -> Flask:
    """The application for gunicorn, as `dither_server.app.create_app_from_env` makes it."""
    try:
        clock = FileClock(Path(os.environ[CLOCK_VARIABLE]))
        return create_app(Settings.from_env(os.environ), clock=clock)
    except ConfigurationError as error:
        sys.stderr.write(f"dither: {error}\n")
        raise SystemExit(APP_LOAD_ERROR) from None
