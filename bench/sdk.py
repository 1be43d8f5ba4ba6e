"""The SDK: import, first record, record, encode."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from dither_client import Client, randomize
from dither_protocol import mechanism, registry_from_document
from harness import ANY_MACHINE, Case, Row, beside, in_turns, median_s
from one_metric import DOCUMENT
from peers import process_s
from silent_server import silent_server
from yardsticks import BARE, PYTHON, SQLITE, python_loop, transactions

_RUNS = 15
_ROUNDS, _RECORDS_A_ROUND = 10, 300
_ENCODED = 200
_EXIT = """
import tempfile, time
from dither_client import Client
client = Client("http://127.0.0.1:PORT", DOCUMENT, ingest_key="k", state_dir=STATE, delay_s=0)
client.record("m", "value 7")
time.sleep(0.5)  # until the sender is inside its request
"""
_FIRST_RECORD = f"""
import os
from dither_client import Client
folder = os.path.join("STATE", str(os.getpid()))
client = Client("http://127.0.0.1:9", {DOCUMENT!r}, ingest_key="k", state_dir=folder)
client.record("m", "value 7")
os._exit(0)
"""


def cases() -> Iterator[Case]:
    """Start, record, exit, encode; all guarded."""
    for rows in (_start_rows, _record_rows, _exit_rows, _encode_rows):
        yield Case("sdk", rows, guarded=True)


def _start_rows() -> Iterator[Row]:
    """What an app's start pays, over a Python that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        programs = ("pass", "import dither_client", _FIRST_RECORD.replace("STATE", folder))
        clock = [partial(process_s, program, 1) for program in programs]
        bare, imported, first = (1e3 * seconds for seconds in in_turns(clock, _RUNS))
        processor = [partial(_processor_s, program) for program in programs]
        idle, importing, recording = (1e3 * seconds for seconds in in_turns(processor, _RUNS))
    for name, value, target in (
        ("sdk import over bare Python", imported - bare, 20),
        ("sdk import, Client, first record", first - bare, 80),
    ):
        yield Row(name, value, "ms", target, higher_is_better=False)
    for name, value in (  # whole processes: a ratio of small differences would be noise
        ("processor time of a process that imports the sdk", importing),
        ("processor time of a process that imports the sdk and records once", recording),
    ):
        yield Row(name, value, "ms", higher_is_better=False, over=idle, yardstick=BARE)


def _processor_s(code: str) -> float:
    """CPU seconds of a whole Python process."""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the measured process ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _record_rows() -> Iterator[Row]:
    """Median time of a durable record() at d = 128, each in a window of its own."""
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    samples, beside_it = [], []
    with tempfile.TemporaryDirectory() as folder, transactions() as yardstick:
        client = Client(
            "http://127.0.0.1:9",
            registry_from_document(DOCUMENT),
            ingest_key="k",
            state_dir=Path(folder),
            delay_s=3600,
            clock=lambda: clock[0],
        )
        for _ in range(_ROUNDS):
            for _ in range(_RECORDS_A_ROUND):
                clock[0] += timedelta(hours=1)
                began = time.perf_counter()
                client.record("m", "value 7")
                samples.append(time.perf_counter() - began)
            beside_it += [yardstick.one_s() for _ in range(_RECORDS_A_ROUND)]
        client.shutdown(0.0)
    value, over = 1e6 * median_s(samples), 1e6 * median_s(beside_it)
    name = "sdk record, durable, d=128"
    yield Row(name, value, "us", 80, higher_is_better=False, over=over, yardstick=SQLITE)


def _exit_rows() -> Iterator[Row]:
    """Exit with a server that never answers: how long it takes, and how many reports are lost by it."""
    with silent_server() as port, tempfile.TemporaryDirectory() as folder:
        code = (
            _EXIT.replace("PORT", str(port))
            .replace("DOCUMENT", repr(DOCUMENT))
            .replace("STATE", repr(folder))
        )
        took = process_s(code, 1) - 0.5
        client = Client(f"http://127.0.0.1:{port}", DOCUMENT, ingest_key="k", state_dir=folder)
        lost = 1 - client.pending_reports()
        client.shutdown(0.0)
    for name, value, unit, target in (
        ("sdk exit, silent server", took, "s", 2.5),  # nearly all of it is the limit on waiting
        ("sdk reports lost by that exit", lost, "reports", None),
    ):
        yield Row(name, value, unit, target, higher_is_better=False, over=1.0, yardstick=ANY_MACHINE)


def _encode_rows() -> Iterator[Row]:
    """Reports of 1,024 bits, one call each."""
    oracle = mechanism("oue", 1.0, 1024)
    took, loop = beside(lambda: [randomize(oracle, 7) for _ in range(_ENCODED)], python_loop)
    yield Row("sdk encode oue d=1024", _ENCODED / took, "1/s", 40_000, over=1 / loop, yardstick=PYTHON)
