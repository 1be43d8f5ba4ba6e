"""Little programs that use the SDK, run as processes of their own with warnings as errors.

A program sees ``client``-making helpers of `support.sdk_app`; it ends by itself, or the test fails at the hang limit.
"""

import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import requests

import dither_client
import dither_protocol
import support.sdk_app

HANG_LIMIT_S = 60.0
TESTS = Path(support.sdk_app.__file__).parent.parent
FIRST_LINES = """
import os, sys, threading, time, signal, faulthandler
faulthandler.register(signal.SIGUSR1, all_threads=True)
from support.sdk_app import ask, make_client
"""
LAST_WORD = 'print("at the end", time.monotonic(), flush=True)'
"""As the last line of a program: what comes after it is the interpreter's exit."""


@dataclass
class Finished:
    """How a program ended.

    Attributes:
        status: its exit status, negative for a signal.
        out: its standard output, by line.
        err: its standard error, whole.
        exit_s: seconds from the line of `LAST_WORD` to the end of the process; 0 where it has none.
    """

    status: int
    out: list[str]
    err: str
    exit_s: float

    @property
    def trouble(self) -> str:
        """Its standard error without the SDK's documented warnings about answers that it could not take."""
        return re.sub(r"^answers are dropped \((busy|forked|reentrant)\)\n", "", self.err, flags=re.MULTILINE)


class Program:
    """A running program; ended by force when the body of the test fails."""

    def __init__(
        self,
        code: str,
        url: str,
        state_dir: Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        interpreter: Sequence[str] = (sys.executable,),
        hang_limit_s: float = HANG_LIMIT_S,
    ) -> None:
        given = {
            name: value for name, value in os.environ.items() if not name.startswith(("DITHER_", "SDK_"))
        }
        given |= {"SDK_URL": url, "PYTHONPATH": os.pathsep.join([str(TESTS), *import_path()])}
        if state_dir is not None:
            given["SDK_STATE_DIR"] = str(state_dir)
        self._limit_s = hang_limit_s
        text = FIRST_LINES + textwrap.dedent(code)
        self.popen = subprocess.Popen(
            [*interpreter, "-X", "dev", "-W", "error", "-c", text],
            env=given | dict(environ or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its children can be ended with it
        )

    def say(self, line: str = "") -> None:
        """Write a line to its standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def hear(self) -> str:
        """The next line of its standard output."""
        assert self.popen.stdout is not None
        if not select.select([self.popen.stdout], [], [], self._limit_s)[0]:
            self.kill()
            raise AssertionError("the program says nothing")
        return self.popen.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        """End it by force, and whatever it has forked; before that each says where it hangs."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGUSR1)
            time.sleep(0.5)
            os.killpg(self.popen.pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def finish(self) -> Finished:
        """Wait for its end."""
        try:
            out, err = self.popen.communicate(timeout=self._limit_s)
        except BaseException:  # the test's own timeout too: nothing may stay behind
            self.kill()
            out, err = self.popen.communicate()
            raise AssertionError(f"the program hangs\n{out}\n{err}") from None
        ended = time.monotonic()
        lines = out.splitlines()
        last = next((float(line.split()[-1]) for line in lines if line.startswith("at the end")), ended)
        return Finished(self.popen.returncode, lines, err, ended - last)


def import_path() -> list[str]:
    """Where this interpreter finds the SDK and requests: other ones find them there too, all of it pure Python."""
    modules = (dither_client, dither_protocol, requests)
    return list(dict.fromkeys(str(Path(str(module.__file__)).parent.parent) for module in modules))


def newer_interpreters() -> list[str]:
    """A Python 3.12 and each later one that this machine has, on PATH or in pyenv, by what they say of themselves."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(f"python3.{minor}") for minor in range(12, 16)]
    candidates += [str(path) for path in sorted(pyenv.glob("3.1[2-5].*/bin/python"))]
    found: dict[str, str] = {}
    for candidate in candidates:
        if candidate is None:
            continue
        command = [candidate, "-c", "import sqlite3, ssl, sys; print('%d.%d' % sys.version_info[:2])"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=HANG_LIMIT_S, check=False)
        if said.returncode == 0 and said.stdout.strip() != "{}.{}".format(*sys.version_info[:2]):
            found.setdefault(said.stdout.strip(), candidate)
    return list(found.values())


def run(code: str, url: str, state_dir: Path | None = None, **options: object) -> Finished:
    """Run a program to its end."""
    return Program(code, url, state_dir, **options).finish()  # type: ignore[arg-type]


def charged(state_dir: Path, scratch: Path) -> set[int]:
    """The questions that have a row in the ledger, read from a copy: the SDK itself shall recover the original."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name in ("dither.sqlite3", "dither.sqlite3-wal"):  # -shm is made anew from these two
        if (state_dir / name).exists():
            shutil.copy(state_dir / name, scratch / name)
    if not (scratch / "dither.sqlite3").exists():
        return set()
    connection = sqlite3.connect(scratch / "dither.sqlite3")
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'charges'").fetchone():
            return set()
        rows = connection.execute("SELECT metric, dimensions FROM charges").fetchall()
    finally:
        connection.close()
    return {int(metric[1:]) * 1_000 + int(dimensions.split("'")[3][1:]) for metric, dimensions in rows}


def left(state_dir: Path) -> int:
    """How many reports lie in the state, sealed or not. No program may be running on it."""
    connection = sqlite3.connect(state_dir / "dither.sqlite3")
    try:
        query = "SELECT (SELECT count(*) FROM open_reports) + (SELECT coalesce(sum(reports), 0) FROM batches)"
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


DELIVER = """
client = make_client(delay_s=0)
result = client.flush(20)
print(result.pending, flush=True)
"""
"""A later run that records nothing: it delivers what earlier ones left."""


def deliver_rest(url: str, state_dir: Path) -> None:
    """One more run; afterwards nothing may be left."""
    finished = run(DELIVER, url, state_dir)
    assert (finished.status, finished.out, finished.err) == (0, ["0"], "")
    assert left(state_dir) == 0
