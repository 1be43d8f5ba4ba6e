"""What other telemetry SDKs cost, in the same run: import, one record, exit with a server that never answers.

(The research libraries of the field are peers too; `ldp_peers.py` measures those, for ``make bench-peers``.)

They are measured where they are installed (``pip install -e '.[bench]'``), and skipped with the reason elsewhere.
None of them randomises, charges a ledger, or has its queue on disk when the call returns.
"""

import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from harness import Case, Row
from silent_server import silent_server

_RUNS: Final = 7
_RECORDS: Final = 2_000
_EXIT_LIMIT_S: Final = 30.0


class Peer(NamedTuple):
    """One SDK: the module to import, how to start it against port PORT, and one call that records."""

    name: str
    module: str
    start: str
    record: str


PEERS: Final = (
    Peer(
        "sentry-sdk",
        "sentry_sdk",
        "import sentry_sdk; sentry_sdk.init(dsn='http://k@127.0.0.1:PORT/1')",
        "sentry_sdk.capture_message('x')",
    ),
    Peer(
        "posthog",
        "posthog",
        "from posthog import Posthog; p = Posthog('k', host='http://127.0.0.1:PORT')",
        "p.capture('e', distinct_id='u')",
    ),
    Peer(
        "segment",
        "segment.analytics",
        "import segment.analytics as a; a.write_key = 'k'; a.host = 'http://127.0.0.1:PORT'",
        "a.track('u', 'e')",
    ),
    Peer(
        "opentelemetry",
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "from opentelemetry.sdk.trace import TracerProvider; "
        "from opentelemetry.sdk.trace.export import BatchSpanProcessor; "
        "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter; "
        "t = TracerProvider(); "
        "t.add_span_processor(BatchSpanProcessor(OTLPSpanExporter('http://127.0.0.1:PORT'))); "
        "tracer = t.get_tracer('b')",
        "tracer.start_span('s').end()",
    ),
)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def process_s(code: str, runs: int = _RUNS) -> float:
    """The fastest of several runs of a whole Python process, seconds.

    Waits without a timeout, which `subprocess` would do by polling every 50 ms; a timer ends what hangs.
    """
    samples = []
    for _ in range(runs):
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        limit = threading.Timer(_EXIT_LIMIT_S, process.kill)
        limit.start()
        status = process.wait()
        samples.append(time.perf_counter() - began)
        limit.cancel()
        if status:
            raise RuntimeError(f"the measured process ended with {status}")
    return min(samples)


def _record_us(peer: Peer, port: int) -> float:
    """Median microseconds of one recording call, measured inside a process of its own that then just ends."""
    code = (
        f"{peer.start.replace('PORT', str(port))}\n"
        "import os, statistics, time\n"
        "def one():\n"
        "    began = time.perf_counter()\n"
        f"    {peer.record}\n"
        "    return time.perf_counter() - began\n"
        f"print(statistics.median(one() for _ in range({_RECORDS})) * 1e6, flush=True)\n"
        "os._exit(0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    return float(ran.stdout.split()[-1])


def cases() -> Iterator[Case]:
    """All of them; what others do is not guarded."""
    yield Case("peers", _rows)


def _rows() -> Iterator[Row]:
    """Three rows per installed peer."""
    bare = process_s("pass")
    with silent_server() as port:
        for peer in PEERS:
            if not _is_installed(peer.module):
                print(f"  peer {peer.name}: skipped, not installed (extra bench)")
                continue
            started = f"{peer.start.replace('PORT', str(port))}\n{peer.record}\n"
            imported = process_s(f"import {peer.module}")
            yield Row(
                f"peer {peer.name} import over bare Python",
                (imported - bare) * 1e3,
                "ms",
                higher_is_better=False,
            )
            yield Row(f"peer {peer.name} record", _record_us(peer, port), "us", higher_is_better=False)
            yield Row(
                f"peer {peer.name} exit, silent server", process_s(started, 1), "s", higher_is_better=False
            )
