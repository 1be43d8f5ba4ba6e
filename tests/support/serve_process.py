"""`dither serve` as a process of its own, with a registry of one question, and what a device and an operator do.

::

    with running_serve(folder) as serve:
        serve.post(reports=3)
        serve.wait_counted(3)
        serve.kill()          # SIGKILL: no chance to clean up
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from dither_protocol.registry import parse_registry

HANG_LIMIT_S = 120.0
REGISTRY = """
schema = 1
project = "example"
[metrics.dark_mode]
version = 1
type = "boolean"
description = "Dark theme"
epsilon = 1.0
mechanism = "rr"
min_reports = 1
"""
METRIC = parse_registry(REGISTRY).metric("dark_mode")

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of ``condition``; fails after the hang limit."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within the hang limit"
        time.sleep(0.05)
    return value


def alive(process: psutil.Process) -> bool:
    """Whether this process runs; a zombie that nobody has reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class ServeProcess:
    """One run of `dither serve` on a state directory.

    Attributes:
        state_dir: its state directory.
        output: file of its stdout and stderr.
    """

    def __init__(self, state_dir: Path, *options: str, environ: Mapping[str, str] | None = None) -> None:
        self.state_dir = state_dir
        registry = state_dir.with_name(state_dir.name + ".toml")
        registry.write_text(REGISTRY, encoding="utf-8")
        self.output = state_dir.with_name(f"{state_dir.name}.{secrets.token_hex(4)}.out")
        arguments = [
            "serve",
            "--state-dir",
            str(state_dir),
            "--registry",
            str(registry),
            "--port",
            "0",
            *options,
        ]
        code = "from dither_cli.entry import main; main()"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
        with self.output.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **(environ or {})},
                start_new_session=True,
            )
        self.family: list[psutil.Process] = []

    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(encoding="utf-8")

    def wait_ready(self) -> None:
        """Wait until it has printed where it is."""
        wait_until(lambda: "Ctrl-C stops it" in self.text() or self.popen.poll() is not None, "dither serve")
        assert self.popen.poll() is None, self.text()
        self.family = psutil.Process(self.popen.pid).children(recursive=True)

    def wait_exit(self) -> int:
        """Its exit code."""
        return self.popen.wait(HANG_LIMIT_S)

    @property
    def env(self) -> dict[str, str]:
        """The variables of the file that a shell would source."""
        lines = (self.state_dir / "env").read_text(encoding="utf-8").splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    def pid(self, name: str) -> int | None:
        """Process id of a child by the record; None while it is not running."""
        recorded = json.loads((self.state_dir / "processes.json").read_text(encoding="utf-8"))
        return next((item["pid"] for item in recorded if item["name"] == name), None)

    def kill_child(self, name: str) -> None:
        """SIGKILL to a child, and wait until the supervisor has put another in its place."""
        before = self.pid(name)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.pid(name) not in (None, before), f"the restart of {name}")

    def gunicorn_workers(self) -> list[psutil.Process]:
        """The server's worker processes."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid("ingest")).children()
        return []

    def kill(self) -> None:
        """SIGKILL to the serve itself."""
        self.popen.kill()
        self.popen.wait(HANG_LIMIT_S)

    def wait_family_gone(self) -> None:
        """Wait until none of the processes that ran when it became ready is left."""
        wait_until(lambda: not any(map(alive, self.family)), "the end of all children")

    def call(self, path: str, key: str = "", body: bytes | None = None) -> tuple[int, Any]:
        """Status and JSON of one request; status 0 if nobody answers."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self.env["DITHER_ENDPOINT"] + path, body, headers)
        try:
            with _opener.open(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except (OSError, ValueError):
            return 0, None

    def post(self, reports: int) -> None:
        """Send one batch as a device would: the same bytes until they are acknowledged."""
        now = datetime.now(UTC)
        window = METRIC.window_at(now)
        report = {"metric": METRIC.name, "version": 1, "params": METRIC.params_hash, "window": window.label}
        batch = {
            "batch": urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode(),
            "until": (now + timedelta(days=METRIC.late_days)).date().isoformat(),
            "reports": [report | {"dimensions": {}, "data": secrets.randbelow(2)} for _ in range(reports)],
        }
        body = json.dumps(batch).encode()

        def acknowledged() -> bool:
            status, answer = self.call("/v1/reports", self.env["DITHER_INGEST_KEY"], body)
            assert status in (0, 202, 500, 503), answer
            return status == 202

        wait_until(acknowledged, "an acknowledgement")

    def counted(self) -> int:
        """How many reports the published estimates stand on, over all windows."""
        path = f"/v1/metrics/{METRIC.name}/estimates"
        status, answer = self.call(path, self.env["DITHER_OPERATOR_TOKEN"])
        if status != 200:
            return 0
        return sum(estimate["n"] for version in answer["versions"] for estimate in version["estimates"])

    def wait_counted(self, n: int) -> None:
        """Wait until exactly ``n`` reports stand behind the estimate."""
        wait_until(lambda: self.counted() >= n, f"{n} reports counted")
        assert self.counted() == n

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Wait until it is ready; at the end stop it, and kill whatever is left of it."""
        try:
            self.wait_ready()
            yield
        finally:
            self.popen.terminate()
            try:
                self.popen.wait(HANG_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            for process in self.family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()  # psutil checks that it is still the same process


@contextmanager
def running_serve(state_dir: Path, *options: str) -> Iterator[ServeProcess]:
    """A serve that is ready; whatever is left of it at the end is killed."""
    serve = ServeProcess(state_dir, *options)
    with serve.kept():
        yield serve
