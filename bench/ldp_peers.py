"""The research libraries of the field, each in an environment of its own, beside Dither with the same workload.

``ldp_probes/NAME.txt`` pins what is installed; a probe beside it does the work and says what the library is. What no
longer installs, imports or ends in time is left out, with the reason.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import Row, Skipped

NAMES: Final = ("pure-ldp", "multi-freq-ldpy", "opendp", "diffprivlib")

_PROBES: Final = Path(__file__).parent / "ldp_probes"
_HOMES: Final = Path(__file__).parent.parent / ".venv-peers"
_INSTALL_LIMIT_S: Final = 600
_PROBE_LIMIT_S: Final = 180
_RUNS: Final = 2  # of each, in turns
_NOISE: Final = ("warning", "[notice]", "note:", "hint:")


@dataclass(frozen=True)
class Facts:
    """What a library is, from its own environment.

    Attributes:
        version: as installed.
        random: where its noise comes from, as its installed code says.
        repeats_when_seeded: whether seeding a generator made the same noise come again; measured.
        intervals: which intervals it gives with an estimate.
    """

    version: str
    random: str
    repeats_when_seeded: bool
    intervals: str


def installed(name: str, python: str) -> str:
    """The Python of the library's environment, which is made first where there is none of the pinned versions.

    Args:
        name: one of `NAMES`.
        python: the Python that makes the environment.

    Raises:
        Skipped: it cannot be installed.
    """
    home, pins = _HOMES / name, _PROBES / f"{name}.txt"
    stamp = home / "installed.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == pins.read_text(encoding="utf-8"):
        return str(home / "bin" / "python")
    shutil.rmtree(home, ignore_errors=True)
    _run([python, "-m", "venv", str(home)], _INSTALL_LIMIT_S)
    found = str(home / "bin" / "python")
    install = [
        found,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    _run([*install, "--retries", "1", "-r", str(pins)], _INSTALL_LIMIT_S)
    shutil.copyfile(pins, stamp)
    return found


def facts(name: str, python: str) -> Facts:
    """What the library is; arguments and errors as for `rows`."""
    return Facts(**_probe(python, _script(name))["facts"])


def own_facts() -> Facts:
    """What Dither is, in the same words."""
    return facts("dither", sys.executable)


def rows(name: str, python: str) -> Iterator[Row]:
    """One row per workload of the library: ours, over theirs of the same minute.

    Args:
        name: one of `NAMES`.
        python: the Python of its environment.

    Raises:
        Skipped: it does not import, fails, or takes too long.
    """
    for workload in _probe(python, _script(name))["workloads"]:
        programs = ((sys.executable, _script("dither")), (python, _script(name)))
        runs = [[_probe(*program, workload)["rates"][workload] for program in programs] for _ in range(_RUNS)]
        ours, theirs = (max(rates) for rates in zip(*runs, strict=True))
        yield Row(f"{workload}, Dither over {name}", ours, "1/s", over=theirs, yardstick=name)


def _script(name: str) -> str:
    return f"{name.replace('-', '_')}_probe.py"


def _probe(python: str, probe: str, *workloads: str) -> dict[str, Any]:
    said = _run([python, str(_PROBES / probe), *workloads], _PROBE_LIMIT_S)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def _run(command: Sequence[str], limit_s: float) -> str:
    """What a program printed.

    Raises:
        Skipped: it failed or took too long; the message is the last meaningful line that it wrote.
    """
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Skipped(f"took longer than {limit_s} s") from None
    except OSError as error:
        raise Skipped(f"{command[0]}: {error.strerror}") from None
    if ran.returncode:
        raise Skipped(last_meaningful(ran.stderr or ran.stdout) or f"ended with {ran.returncode}")
    return ran.stdout


def last_meaningful(text: str) -> str:
    """The last line of what pip or a traceback wrote that says what went wrong."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.lower().startswith(_NOISE)]
    return said[-1] if said else ""
