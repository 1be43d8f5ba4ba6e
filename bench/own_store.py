"""A store of the benchmark's own: a private folder, a private socket, gone afterwards."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from dither_cli.embedded_store import find_binary

_START_LIMIT_S = 30


@contextmanager
def own_store(*, fsync: str = "always", cpu: int | None = None) -> Iterator[str]:
    """Run the embedded engine; gives its URL.

    Args:
        fsync: ``always`` or ``everysec``.
        cpu: the one core that it may use; None for any.
    """
    folder = Path(tempfile.mkdtemp(prefix="db-", dir="/tmp"))  # a socket's path must be short
    options = {
        "port": "0", "unixsocket": str(folder / "s"), "dir": str(folder), "save": "", "appendonly": "yes",
        "appendfsync": fsync, "maxmemory": "4gb", "maxmemory-policy": "noeviction",
    }  # fmt: skip
    command = [
        str(find_binary()),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    if cpu is not None:
        command = ["taskset", "-c", str(cpu), *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"unix://{folder / 's'}"
    try:
        _wait(url)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _wait(url: str) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            with redis.Redis.from_url(url) as client:
                client.ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def used_bytes(client: redis.Redis) -> int:
    """Memory that the store's data takes: what it allocated, without connections' buffers and the like."""
    client.execute_command("MEMORY", "PURGE")
    return int(client.info("memory")["used_memory_dataset"])
