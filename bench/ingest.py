"""Ingest: admitted requests/s of one gunicorn worker, over those of an empty Flask route on the same worker.

The load comes from ``wrk`` on a core of its own; where it is not installed there are no rows, and that is said.
"""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dither_harness.wrk import batches_script
from dither_protocol.registry import parse_registry
from dither_server.auth import key_hash
from dither_server.settings import Settings
from harness import ANY_MACHINE, Case, Row, Skipped
from own_server import LOAD_CPU, PORT, own_server
from own_store import own_store

_SECONDS = 6
_CONNECTIONS = 32
_THREADS = Settings.threads  # as it is deployed; the empty route has as many
_TURNS = 2
_EMPTY = "empty"
_ACKS = {"fsync": "always", "memory": "everysec"}
_REPORTS = 10
KEY = "bench"

_REGISTRY = """
schema = 1
project = "bench"
[metrics.default_browser]
version = 1
type = "categorical"
description = "Browser that opens links"
categories = ["chrome", "firefox", "safari", "edge", "other"]
epsilon = 1.0
mechanism = "grr"
dimensions = { os = ["linux", "macos", "windows"] }
"""


def cases() -> Iterator[Case]:
    """All of it together, since all of it is over the empty route; guarded."""
    yield Case("ingest", _rows, guarded=True)


def _rows() -> Iterator[Row]:
    """An empty route, then ingest with each acknowledgement that one store can give."""
    if shutil.which("wrk") is None:
        raise Skipped("wrk is not installed")
    with tempfile.TemporaryDirectory() as name:
        rates = _best_rates(Path(name))
    yield Row("empty Flask route", rates[_EMPTY], "1/s")
    for ack in _ACKS:
        yield Row(f"ingest, ack={ack}, {_REPORTS} reports a batch", rates[ack], "1/s")
        title, target = f"ingest over an empty route, ack={ack}", 0.7 if ack == "fsync" else None
        yield Row(title, rates[ack] / rates[_EMPTY], "", target, over=1.0, yardstick=ANY_MACHINE)


def _best_rates(folder: Path) -> dict[str, float]:
    """Requests/s, the best of each in turns: the machine is not the same from one minute to the next."""
    environ = _files(folder)
    rates = dict.fromkeys((_EMPTY, *_ACKS), 0.0)
    plain = ["--worker-class", "gthread", "--threads", str(_THREADS), "empty_app:app"]
    for _ in range(_TURNS):
        with own_server(folder, plain, {}):
            rates[_EMPTY] = max(rates[_EMPTY], _rate(folder))
        for ack, fsync in _ACKS.items():
            with own_store(fsync=fsync) as url:
                given = environ | {"DITHER_STORE_URL": url, "DITHER_ACK": ack}
                with own_server(folder, ["-c", "python:dither_server.gunicorn_config"], given):
                    rates[ack] = max(rates[ack], _rate(folder))
    return rates


def project_files(folder: Path) -> None:
    """Write the registry and the file of keys of a small project."""
    (folder / "registry.toml").write_text(_REGISTRY)
    key = {"name": "bench", "role": "ingest", "sha256": key_hash(KEY)}
    (folder / "keys.json").write_text(json.dumps({"keys": [key]}))


def _files(folder: Path) -> dict[str, str]:
    project_files(folder)
    (folder / "load.lua").write_text(batches_script(KEY, batch_tail()))
    return {
        "DITHER_REGISTRY": str(folder / "registry.toml"),
        "DITHER_KEYS_FILE": str(folder / "keys.json"),
        "DITHER_WORKERS": "1",
        "DITHER_THREADS": str(_THREADS),
        "DITHER_BIND": f"127.0.0.1:{PORT}",
        "DITHER_HIGH_WATER_BYTES": str(400 << 20),
    }


def batch_tail() -> str:
    """A batch of ten reports as JSON, without its beginning, which has the id."""
    report = {
        "metric": "default_browser", "version": 1,
        "params": parse_registry(_REGISTRY).metrics["default_browser"].params_hash,
        "window": time.strftime("%Y-%m-%d", time.gmtime()), "dimensions": {"os": "linux"}, "data": 3,
    }  # fmt: skip
    until = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86_400))
    return json.dumps({"until": until, "reports": [report] * _REPORTS}, separators=(",", ":"))[1:]


def _rate(folder: Path) -> float:
    """Requests/s; any answer but 2xx is an error."""
    command = ["taskset", "-c", str(LOAD_CPU), "wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}s"]
    command += ["-s", str(folder / "load.lua"), f"http://127.0.0.1:{PORT}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    found = re.search(r"Requests/sec:\s*([0-9.]+)", said)
    if found is None:
        raise RuntimeError(said)
    return float(found[1])
