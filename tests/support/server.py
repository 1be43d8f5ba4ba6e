"""A small project and its server, for tests: a registry, keys, batches, and a real gunicorn where it is needed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import requests

from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.registry import Registry, parse_registry
from dither_protocol.wire import new_batch_id
from dither_server.auth import key_hash
from dither_server.settings import Settings

# Far ahead: the store forgets by its own clock, and tests must not begin to fail some day.
NOW = datetime(2126, 11, 29, 12, 0, tzinfo=UTC)
TODAY = NOW.date()
INGEST_KEY = "ingest_test"
OPERATOR_KEY = "operator_test"
_HANG_LIMIT_S = 60

REGISTRY = """
schema = 1
project = "example-editor"

[metrics.dark_mode]
version = 1
type = "boolean"
description = "Whether the dark theme is on"
epsilon = 1.0
mechanism = "rr"
late_days = 3

[metrics.browser]
version = 2
type = "categorical"
description = "Browser that opens links"
categories = ["chrome", "firefox", "safari", "edge", "other"]
epsilon = 1.0
mechanism = "grr"
dimensions = { os = ["linux", "macos", "windows"] }

[metrics.toolbar]
version = 1
type = "categorical"
description = "Toolbar button used last"
categories = ["open", "save", "undo", "redo", "cut", "copy", "paste", "find", "help", "other"]
epsilon = 2.0
mechanism = "oue"
period = "hour"
late_days = 0

[metrics.retired]
version = 1
type = "boolean"
description = "No longer asked"
epsilon = 1.0
mechanism = "rr"
expires = 2126-11-20
late_days = 30

[metrics.first_use]
version = 1
type = "boolean"
description = "Asked once"
epsilon = 1.0
mechanism = "rr"
period = "once"
expires = 2199-12-31
"""


@dataclass
class Clock:
    """A clock that a test sets: ``clock.now = ...``."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        """The time that it was set to."""
        return self.now


@cache
def registry() -> Registry:
    """The project's registry."""
    return parse_registry(REGISTRY)


def report(
    about: str = "dark_mode", data: object = 1, window: str | None = None, **changes: object
) -> dict[str, Any]:
    """A report that is accepted at `NOW`, or with ``window`` at another time; ``changes`` replace its keys."""
    found = registry().metrics[about]
    document: dict[str, Any] = {
        "metric": about,
        "version": found.version,
        "params": found.params_hash,
        "window": window or found.window_at(NOW).label,
        "dimensions": {name: values[0] for name, values in found.dimensions.items()},
        "data": data,
    }
    return document | changes


def batch(*reports: object, until: date | str | None = None, batch_id: bytes | None = None) -> dict[str, Any]:
    """A batch of ``reports``, of one accepted report where there are none."""
    return {
        "batch": encode_base64url(batch_id or new_batch_id()),
        "until": str(until or TODAY + timedelta(days=3)),
        "reports": list(reports) or [report()],
    }


def write_files(folder: Path, registry_text: str = REGISTRY) -> tuple[Path, Path]:
    """The registry and the keys file of the project in ``folder``."""
    registry_path, keys_path = folder / "registry.toml", folder / "keys.json"
    registry_path.write_text(registry_text)
    keys = [
        {"name": "app", "role": "ingest", "sha256": key_hash(INGEST_KEY)},
        {"name": "people", "role": "operator", "sha256": key_hash(OPERATOR_KEY)},
    ]
    keys_path.write_text(json.dumps({"keys": keys}))
    return registry_path, keys_path


def settings(folder: Path, store_url: str, *, registry_text: str = REGISTRY, **changes: Any) -> Settings:
    """Settings over files in ``folder``; ``changes`` replace fields."""
    registry_path, keys_path = write_files(folder, registry_text)
    fields: dict[str, Any] = {"store_url": store_url, "registry": registry_path, "keys_file": keys_path}
    return Settings(**fields | changes)


def bearer(key: str = INGEST_KEY) -> dict[str, str]:
    """The headers that present a key."""
    return {"Authorization": f"Bearer {key}"}


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A gunicorn of the test's own.

    Attributes:
        process: its master.
        port: on 127.0.0.1.
        log: where its standard output and error go.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def post(self, document: object, key: str = INGEST_KEY) -> requests.Response:
        """Send a batch."""
        return self.session.post(
            f"{self.url}/v1/reports", json=document, headers=bearer(key), timeout=_HANG_LIMIT_S
        )

    def get(self, path: str, key: str | None = OPERATOR_KEY) -> requests.Response:
        """Read a path."""
        headers = bearer(key) if key else {}
        return self.session.get(self.url + path, headers=headers, timeout=_HANG_LIMIT_S)

    def log_text(self) -> str:
        """All that it has logged so far."""
        return self.log.read_text(errors="replace")

    def raw(self, sent: bytes) -> bytes:
        """Send bytes as they are, and read the answer to its end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_HANG_LIMIT_S) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
            return b"".join(parts)


def start_gunicorn(folder: Path, store_url: str, environ: Mapping[str, str] | None = None) -> Server:
    """Start gunicorn without waiting for it; end it with `stop_gunicorn`."""
    registry_path, keys_path = folder / "registry.toml", folder / "keys.json"
    if not registry_path.exists():
        write_files(folder)
    port = free_port()
    given = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
    given |= {
        "DITHER_STORE_URL": store_url,
        "DITHER_REGISTRY": str(registry_path),
        "DITHER_KEYS_FILE": str(keys_path),
        "DITHER_BIND": f"127.0.0.1:{port}",
        "DITHER_WORKERS": "1",
        "DITHER_THREADS": "4",
    } | dict(environ or {})
    log = folder / "gunicorn.log"
    command = [sys.executable, "-m", "gunicorn", "-c", "python:dither_server.gunicorn_config"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=given, stdout=output, stderr=output, start_new_session=True, cwd=folder
        )
    return Server(process, port, log)


def stop_gunicorn(server: Server) -> None:
    """End it in order, by force where it hangs: the whole session that it started."""
    server.session.close()
    if server.process.poll() is None:
        server.process.terminate()
        try:
            server.process.wait(_HANG_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()


@contextmanager
def running_server(
    folder: Path, store_url: str, environ: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A real gunicorn over the store at ``store_url``, answering when the body begins."""
    server = start_gunicorn(folder, store_url, environ)
    try:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while True:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gunicorn did not start:\n{server.log_text()}")
            try:
                server.get("/healthz")
                break
            except requests.ConnectionError:
                time.sleep(0.02)
        yield server
    finally:
        stop_gunicorn(server)
