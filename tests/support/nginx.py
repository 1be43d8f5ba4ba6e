"""A real nginx with a configuration of ``deploy/``, in front of a server on this machine."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from support.requirements import need
from support.server import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
_HANG_LIMIT_S = 60
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def nginx_binary() -> str:
    """Debian's package ``nginx-light`` has one; skips where there is none."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        need("nginx", "no nginx on this machine")
    return found


def localized(text: str, folder: Path, port: int, upstream_port: int) -> str:
    """A configuration with what only a container has replaced: its port, the names of the network, its folders.

    ``resolve`` of a server in an upstream is newer than the nginx of some systems (1.27.3), and goes with the name.
    """
    temporary = "\n".join(f"    {name}_temp_path {folder / name};" for name in _TEMPORARY)
    for pattern, fresh in (
        (r"pid /run/nginx\.pid;", f"pid {folder / 'nginx.pid'};"),
        (r"http \{", f"http {{\n{temporary}"),
        (r"    resolver 127\.0\.0\.11 valid=10s;.*\n", ""),
        (r"server \w+:8787 resolve;", f"server 127.0.0.1:{upstream_port};"),
        (r"listen 8080;", f"listen 127.0.0.1:{port};"),
    ):
        text, replaced = re.subn(pattern, fresh, text)
        assert replaced == 1, pattern
    return text


@contextmanager
def running_nginx(folder: Path, name: str, upstream_port: int) -> Iterator[str]:
    """The URL of an nginx with ``deploy/<name>`` in front of a port of this machine; skips where there is no nginx."""
    binary, port = nginx_binary(), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(localized((DEPLOY / name).read_text(encoding="utf-8"), folder, port, upstream_port))
    command = [binary, "-p", str(folder), "-c", str(config)]
    tested = subprocess.run(
        [*command, "-t"], capture_output=True, text=True, timeout=_HANG_LIMIT_S, check=False
    )
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr, tested.stderr
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "-g", "daemon off;"], stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _HANG_LIMIT_S
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nginx did not start:\n{log.read_text(errors='replace')}")
            try:
                requests.get(f"http://127.0.0.1:{port}/nginx-health", timeout=_HANG_LIMIT_S)
                break
            except requests.ConnectionError:
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_HANG_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
