"""Instructions per record() and per ingested batch, counted by valgrind: a loss that timing would hide in its noise.

A program does its work n and then m times; the difference, over m - n, is free of its start. Counts depend on the
builds of Python, SQLite and valgrind, so they are compared only where those are the same.
"""

import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness import ANY_MACHINE, Case, Row, Skipped
from ingest import project_files
from own_store import own_store

_FEW, _MANY = 100, 400
_LIMIT_S: Final = 600
_HERE: Final = Path(__file__).parent
_COLLECTED: Final = re.compile(r"Collected : (\d+)")


def cases() -> Iterator[Case]:
    """Both guarded."""
    yield Case("instructions", _record_rows, guarded=True)
    yield Case("instructions", _ingest_rows, guarded=True)


def _record_rows() -> Iterator[Row]:
    condition = _condition()
    with tempfile.TemporaryDirectory() as name:
        count = _each("counted_record.py", name)
    yield _row("instructions of record(), durable, d=128", count, condition)


def _ingest_rows() -> Iterator[Row]:
    """The store's own instructions are not counted: it is another process."""
    condition = _condition()
    with tempfile.TemporaryDirectory() as name, own_store(fsync="everysec") as url:
        project_files(Path(name))
        count = _each("counted_ingest.py", name, url)
    yield _row("instructions of ingest, a batch of 10 reports", count, condition)


def _row(name: str, count: float, condition: str) -> Row:
    return Row(
        name, count, "instructions", higher_is_better=False,
        over=1.0, yardstick=ANY_MACHINE, condition=condition,
    )  # fmt: skip


def _condition() -> str:
    """The builds that the counts depend on."""
    said = subprocess.run([_valgrind(), "--version"], check=True, capture_output=True, text=True).stdout
    python = f"Python {platform.python_version()} ({platform.python_compiler()}, {platform.machine()})"
    return f"{python}, SQLite {sqlite3.sqlite_version}, {said.strip()}"


def _valgrind() -> str:
    """Its path.

    Raises:
        Skipped: it is not installed.
    """
    found = shutil.which("valgrind")
    if found is None:
        raise Skipped("valgrind is not installed")
    return found


def _each(program: str, *arguments: str) -> float:
    """Instructions of one of the program's rounds."""
    subprocess.run(  # compiles what it imports, which would be counted otherwise
        [sys.executable, str(_HERE / program), "1", *arguments], check=True, timeout=_LIMIT_S, env=_environ()
    )
    few, many = (counted([sys.executable, str(_HERE / program), str(n), *arguments]) for n in (_FEW, _MANY))
    return (many - few) / (_MANY - _FEW)


def counted(command: list[str]) -> int:
    """Instructions that a program takes from its start to its end, its threads included.

    Raises:
        Skipped: valgrind is not installed.
        RuntimeError: the program failed, or valgrind said no number.
    """
    ran = subprocess.run(
        [_valgrind(), "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        check=False, timeout=_LIMIT_S, env=_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = _COLLECTED.search(ran.stderr)
    if ran.returncode or found is None:
        raise RuntimeError(f"valgrind ended with {ran.returncode}: {ran.stderr[-2_000:]}")
    return int(found[1])


def _environ() -> dict[str, str]:
    """The same for every run: hashes of strings, and so the order of sets, differ otherwise."""
    return {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
