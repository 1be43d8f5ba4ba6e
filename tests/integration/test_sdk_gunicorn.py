"""A real gunicorn that forks workers from a master which has a client already."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from support.sdk_programs import TESTS, deliver_rest, import_path
from support.sdk_server import counting_server

HANG_LIMIT_S = 60.0
REQUESTS = 240
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _get(port: int, number: int) -> list[str]:
    """Ask the app to record a question: pid, status, reason."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while True:
        try:
            with _opener.open(f"http://127.0.0.1:{port}/{number}", timeout=HANG_LIMIT_S) as answer:
                return answer.read().decode().split(" ")
        except urllib.error.URLError:  # not listening yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("worker", ["sync", "gthread"])
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "memory"])
def test_preloaded_with_four_workers(tmp_path: Path, worker: str, on_disk: bool) -> None:
    """The client is made before the fork, every worker records, and all reports arrive, each once."""
    state = tmp_path / "state"
    log = tmp_path / "log"
    port = _free_port()
    with counting_server() as server:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
        environ |= {"SDK_URL": server.url, "PYTHONPATH": os.pathsep.join([str(TESTS), *import_path()])}
        if on_disk:
            environ["SDK_STATE_DIR"] = str(state)
        command = [
            sys.executable, "-m", "gunicorn", "--preload", "--workers", "4", "--worker-class", worker, "--threads",
            "1" if worker == "sync" else "4", "--bind", f"127.0.0.1:{port}", "support.sdk_wsgi_app:application",
        ]  # fmt: skip
        with log.open("wb") as output:
            gunicorn = subprocess.Popen(
                command, env=environ, stdout=output, stderr=output, cwd=tmp_path, start_new_session=True
            )
        try:
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda number: _get(port, number), range(1, REQUESTS + 1)))
            gunicorn.terminate()
            assert gunicorn.wait(HANG_LIMIT_S) == 0, log.read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(gunicorn.pid, signal.SIGKILL)
            gunicorn.wait()
        assert "Traceback" not in log.read_text()
        assert (
            len({pid for pid, _, _ in answers}) >= 2
        )  # which worker takes a connection is the kernel's choice
        queued = {number for number, answer in enumerate(answers, 1) if answer[1] == "queued"}
        assert {reason for _, _, reason in answers} <= {"", "busy"}
        assert len(queued) > 0.9 * REQUESTS
        if on_disk:
            deliver_rest(server.url, state)
        assert server.snapshot() == dict.fromkeys({0} | queued, 1)
        assert len(set(server.data)) == len(server.data)
