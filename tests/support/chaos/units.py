"""What the fleet consists of: the store, gunicorn with two workers, two estimators."""

import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from support.chaos.plan import PARTITIONS
from support.chaos.processes import Unit
from support.chaos.wsgi import CLOCK_VARIABLE
from support.store import Store

_TESTS: Final = Path(__file__).parents[2]
_STILL_FITS_BYTES: Final = 200  # on a full disk: less than most appends, so that one fails in its middle


def child_environ(rooms: Path | None, **own: str) -> dict[str, str]:
    """The environment of a child: none of the user's DITHER variables; mutated rooms first on its path, if any."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
    path = [str(rooms)] if rooms else []
    path += [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)} | own


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StoreUnit(Unit):
    """The embedded Valkey: append-only, fsync always."""

    def __init__(self, folder: Path) -> None:
        super().__init__("store", folder / "store.log")
        self.store = Store(folder, {"maxmemory": "1gb"})
        self._full = False

    def _command(self) -> list[str]:
        return self.store.command()

    def _environ(self) -> Mapping[str, str]:
        return os.environ

    async def start(self) -> None:
        """Start it, on a full disk where there is one."""
        await super().start()
        if self._full:
            self.fill_disk()

    def fill_disk(self) -> None:
        """From now on its append-only file cannot grow: the kernel refuses, as it does where a disk is full."""
        self._full = True
        files = self.store.folder.glob("appendonlydir/*.incr.aof")
        size = max((file.stat().st_size for file in files), default=0)
        self._limit(size + _STILL_FITS_BYTES)

    def make_room(self) -> None:
        """Its files can grow again."""
        self._full = False
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class ServerUnit(Unit):
    """gunicorn with two workers on a port of its own.

    A new master can listen while workers of the one before are ending (SO_REUSEPORT), as behind a load balancer.
    """

    def __init__(self, folder: Path, rooms: Path | None, store_url: str, files: Mapping[str, Path]) -> None:
        super().__init__("gunicorn", folder / "gunicorn.log")
        self.port = free_port()
        self._environment = child_environ(
            rooms,
            DITHER_STORE_URL=store_url,
            DITHER_REGISTRY=str(files["registry"]),
            DITHER_KEYS_FILE=str(files["keys"]),
            DITHER_BIND=f"127.0.0.1:{self.port}",
            DITHER_PARTITIONS=str(PARTITIONS),
            DITHER_WORKERS="2",
            DITHER_THREADS="4",
            **{CLOCK_VARIABLE: str(files["clock"])},
        )

    def _command(self) -> list[str]:
        options = ["-c", "python:dither_server.gunicorn_config", "--reuse-port"]
        return [sys.executable, "-m", "gunicorn", *options, "support.chaos.wsgi:create()"]

    def _environ(self) -> Mapping[str, str]:
        return self._environment

    def workers(self) -> list[psutil.Process]:
        """Its worker processes now, the oldest first."""
        if self.pid is None:
            return []
        with suppress(psutil.NoSuchProcess):
            return sorted(psutil.Process(self.pid).children(), key=lambda worker: worker.pid)
        return []

    def signal_worker(self, place: int, number: int) -> int | None:
        """Send one of the workers a signal; its process id, None where there is none."""
        workers = self.workers()
        if not workers:
            return None
        worker = workers[place % len(workers)]
        with suppress(psutil.NoSuchProcess):
            worker.send_signal(number)
            return worker.pid
        return None

    def replace(self) -> None:
        """SIGTERM to the master, and a new one at once: the old one finishes what it has."""
        self.family()  # so that its workers are remembered
        if self.signal(signal.SIGTERM):
            self.leave()


class EstimatorUnit(Unit):
    """One `python -m dither_estimator.worker`."""

    def __init__(self, number: int, folder: Path, rooms: Path | None, store_url: str) -> None:
        name = (
            f"estimator-{number}"  # a restarted worker goes on with the partitions of the one before at once
        )
        super().__init__(name, folder / f"{name}.log")
        self._environment = child_environ(rooms, DITHER_STORE_URL=store_url, DITHER_WORKER_NAME=name)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "dither_estimator.worker"]

    def _environ(self) -> Mapping[str, str]:
        return self._environment
