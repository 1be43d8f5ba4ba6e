"""``wrk`` on ingest: batches with an id each, as fast as they are taken, over so many connections."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dither_cli.simulate_place import Target

# Every request carries an id of its own: 21 free characters of base64url, and one whose low bits are zero.
_SCRIPT: Final = """
local letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
local last = "AQgw"
function init(args) math.randomseed(SEED) end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer KEY"
local tail = 'TAIL'
function request()
  local id = {}
  for i = 1, 21 do local at = math.random(64) id[i] = letters:sub(at, at) end
  local at = math.random(4)
  id[22] = last:sub(at, at)
  return wrk.format(nil, "/v1/reports", nil, '{"batch":"' .. table.concat(id) .. '",' .. tail)
end
"""
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class WrkFound:
    """What ``wrk`` measured.

    Attributes:
        connections: that it had.
        requests_per_s: answered.
        p50_s: of all answers, seconds.
        p99_s: of all answers, seconds.
        not_accepted: answers that were not 2xx, and requests without an answer: where there are none, the latencies
            are those of accepted requests.
    """

    connections: int
    requests_per_s: float
    p50_s: float
    p99_s: float
    not_accepted: int


def wrk_installed() -> bool:
    """Whether there is one."""
    return shutil.which("wrk") is not None


def run_wrk(
    target: Target, batch: Mapping[str, Any], connections: int, seconds: int, folder: Path
) -> WrkFound:
    """Send this batch over and over, each time under an id of its own.

    Raises:
        subprocess.CalledProcessError: it failed.
        ValueError: it said something else than expected.
    """
    tail = json.dumps(
        {name: value for name, value in batch.items() if name != "batch"}, separators=(",", ":")
    )[1:]
    file = folder / "batches.lua"
    file.write_text(batches_script(target.ingest_key, tail), "utf-8")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "--latency"]
    command += ["-s", str(file), target.url]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return parse_wrk(said, connections)


def batches_script(ingest_key: str, tail: str) -> str:
    """A script for ``wrk`` with one thread; ``tail`` is a batch as JSON without its beginning, which has the id."""
    script = _SCRIPT.replace("KEY", ingest_key).replace("TAIL", tail)
    return script.replace("SEED", str(int.from_bytes(os.urandom(4))))


def parse_wrk(said: str, connections: int) -> WrkFound:
    """Read its report.

    Raises:
        ValueError: it is none.
    """
    rate = re.search(r"Requests/sec:\s*([0-9.]+)", said)
    latencies = dict(re.findall(r"^\s*(50|99)%\s+([0-9.]+(?:us|ms|s|m)) *$", said, re.MULTILINE))
    if rate is None or latencies.keys() != {"50", "99"}:
        raise ValueError(f"no report of wrk: {said!r}")
    refused = re.search(r"Non-2xx or 3xx responses: ([0-9]+)", said)
    broken = re.search(
        r"Socket errors: connect ([0-9]+), read ([0-9]+), write ([0-9]+), timeout ([0-9]+)", said
    )
    lost = sum(map(int, broken.groups())) if broken else 0
    return WrkFound(
        connections,
        float(rate[1]),
        seconds_of(latencies["50"]),
        seconds_of(latencies["99"]),
        lost + (int(refused[1]) if refused else 0),
    )


def seconds_of(text: str) -> float:
    """A time as ``wrk`` writes it, such as 12.50ms, in seconds."""
    found = re.fullmatch(r"([0-9.]+)(us|ms|s|m)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time of wrk")
    return float(found[1]) * _UNITS_S[found[2]]
