"""Fixed work that stands for the speed of the machine: a figure over one of these means the same on another one.

None of it uses any part of Dither, and none of it may ever be changed: every committed ratio is over it.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

PYTHON: Final = "loop of plain Python"
NUMPY: Final = "loop of numpy"
SQLITE: Final = "SQLite transaction"
BARE: Final = "start of a bare Python"

_INDICES: Final = np.arange(200_000, dtype=np.uint32) * np.uint32(2_654_435_761) >> np.uint32(20)
_BYTES: Final = (np.arange(1 << 17, dtype=np.uint32) * np.uint32(40_503) >> np.uint32(3)).astype(np.uint8)


def python_loop() -> int:
    """Calls, dictionaries, strings, bytes, and integers small and large; a few milliseconds."""
    found: dict[str, int] = {}
    total = 0
    for number in range(4_000):
        key = f"value {number & 127}"
        found[key] = found.get(key, 0) + _mixed(number)
        wide = int.from_bytes(number.to_bytes(2, "big") * 16, "big")
        total += (wide & (wide >> 3)).bit_count()
    return total + sum(found.values())


def _mixed(number: int) -> int:
    return (number * 0x9E3779B1 & 0xFFFFFFFF) >> 7


def numpy_loop() -> int:
    """Histogram, bits and hashes: what counters are made of; a few milliseconds."""
    counted = np.bincount(_INDICES, minlength=4_096)
    bits = np.unpackbits(_BYTES).reshape(-1, 128).sum(axis=0, dtype=np.int64)
    hashed = (_INDICES * np.uint32(0x85EBCA6B)) ^ (_INDICES >> np.uint32(13))
    return int(counted[-1] + bits[-1] + (hashed < np.uint32(1 << 30)).sum())


class Transactions:
    """Transactions on a file, in the manner of a durable queue: write-ahead log, no wait for the disk."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = normal")
        self._connection.execute("create table spent (day integer primary key, sum integer)")
        self._connection.execute("create table waiting (id integer primary key, report blob)")
        self._day = 0

    def one_s(self) -> float:
        """Seconds of one: a row read, one replaced, one of 64 bytes added."""
        began = perf_counter()
        self._day += 1
        run = self._connection.execute
        run("begin immediate")
        run("select sum from spent where day = ?", (self._day,)).fetchone()
        run("insert or replace into spent values (?, ?)", (self._day, 1))
        run("insert into waiting (report) values (?)", (bytes(64),))
        run("commit")
        return perf_counter() - began

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@contextmanager
def transactions() -> Iterator[Transactions]:
    """Transactions in a folder of their own, gone afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Transactions(Path(folder) / "yardstick.db")) as given,
    ):
        yield given
