"""A gunicorn of the benchmark's own: one worker, pinned to a core."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import psutil

SERVER_CPU, LOAD_CPU = 0, 1
_START_LIMIT_S = 30


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PORT = _free_port()


@contextmanager
def own_server(folder: Path, arguments: list[str], environ: Mapping[str, str]) -> Iterator[psutil.Process]:
    """Run it on `PORT` while the body lasts; ``folder`` holds its log. Gives its worker."""
    command = ["taskset", "-c", str(SERVER_CPU), sys.executable, "-m", "gunicorn", "--log-level", "error"]
    command += ["--bind", f"127.0.0.1:{PORT}", "--workers", "1", *arguments]
    given = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
    given |= {"PYTHONPATH": str(Path(__file__).parent)} | environ
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=given, cwd=folder, stdout=log, stderr=log)
    try:
        _wait()
        yield psutil.Process(process.pid).children()[0]
    finally:
        process.terminate()
        process.wait()


def _wait() -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            urlopen(Request(f"http://127.0.0.1:{PORT}/", method="GET"), timeout=1).close()
            return
        except OSError as error:
            if getattr(error, "code", None):  # it answers, with 404
                return
            time.sleep(0.05)
    raise RuntimeError("gunicorn did not start")
