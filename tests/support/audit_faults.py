"""Faulty SDKs for `dither audit`: copies of the packages with one fault each, and the command run on them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.chaos.mutations import Patch, mutated_rooms

HANG_LIMIT_S: Final = 280.0
RUN: Final = "from dither_cli.entry import main; main()"

_SAMPLING: Final = "sampling/__init__.py"
_RANDOMIZE: Final = "def randomize(mechanism: Mechanism, index: int) -> Data:\n"
_SAMPLE: Final = "    return sampler(mechanism, index)\n"

LOUD: Final[tuple[Patch, ...]] = (
    (
        "dither_client",
        _SAMPLING,
        _RANDOMIZE,
        """
def _louder(mechanism):
    import copy
    from dither_protocol.mechanisms.weights import exp_floor, flip_threshold

    louder = copy.copy(mechanism)
    louder.__dict__.pop("total_weight", None)
    if mechanism.name in ("sue", "oue"):
        halves = 2 if mechanism.name == "sue" else 1
        louder.__dict__["noise_threshold"] = flip_threshold(1.5 * mechanism.epsilon, halves)
    else:
        louder.__dict__["truth_weight"] = exp_floor(1.5 * mechanism.epsilon)
    return louder


"""
        + _RANDOMIZE,
    ),
    ("dither_client", _SAMPLING, _SAMPLE, _SAMPLE.replace("(mechanism", "(_louder(mechanism)")),
)
"""Every sampler spends one and a half times its epsilon; the shape of reports stays."""

LOUD_WEIGHTS: Final[tuple[Patch, ...]] = (
    (
        "dither_protocol",
        "mechanisms/weights.py",
        "    return min(Decimal(repr(epsilon)), Decimal(epsilon))\n",
        "    return Decimal(epsilon) * 3 / 2\n",
    ),
)
"""The weights that all rooms share are those of one and a half times the epsilon: counts and p and q agree."""

RERANDOMISED: Final[tuple[Patch, ...]] = (
    (
        "dither_client",
        _SAMPLING,
        _RANDOMIZE,
        """
_answers = {}
_tried = set()


def again(body):
    import json

    batch = json.loads(body)
    if batch["batch"] in _tried:
        for report in batch["reports"]:
            answer = _answers.get(json.dumps(report["data"]))  # none after a restart
            report["data"] = randomize(*answer) if answer else report["data"]
    _tried.add(batch["batch"])
    return json.dumps(batch, separators=(",", ":")).encode()


def randomize(mechanism, index):
    import json

    data = _randomize(mechanism, index)
    _answers[json.dumps(data)] = mechanism, index
    return data


"""
        + _RANDOMIZE.replace("randomize", "_randomize"),
    ),
    (
        "dither_client",
        "sender.py",
        "self._transport.send(batch.body)",
        'self._transport.send(__import__("dither_client.sampling").sampling.again(batch.body))',
    ),
)
"""A second try of a batch carries fresh noise."""

_DRAW: Final = "os.urandom(size)"
_BYTES: Final = "return os.urandom(count)"


def _entropy(first_lines: str, generator: str) -> tuple[Patch, ...]:
    """Noise from another generator, a function of a number of bytes."""
    return (
        ("dither_client", "entropy.py", "import os\n", f"import os\n{first_lines}\n"),
        ("dither_client", "entropy.py", _DRAW, f"{generator}(size)"),
        ("dither_client", "entropy.py", _BYTES, f"return {generator}(count)"),
    )


KNOWN_SEED: Final = _entropy("import random\n_twister = random.Random(2026)", "_twister.randbytes")
"""Noise from a Mersenne Twister with a seed that stands in the source."""

APP_SEED: Final = _entropy("import random", "random.randbytes")
"""Noise from the generator of the module `random`, which the app may seed."""

CLOCK_SEED: Final = _entropy(
    "import random, time\n_twister = random.Random(time.time_ns() + os.getpid())", "_twister.randbytes"
)
"""Noise from a Mersenne Twister that is seeded with the time and the process id."""

SYSTEM_SEED: Final = _entropy("import random\n_twister = random.Random()", "_twister.randbytes")
"""Noise from a Mersenne Twister that the operating system has seeded: some 600 numbers give all others away."""

SHARED_POOL: Final = _entropy("import io\n_pool = io.BytesIO(os.urandom(1 << 23))", "_pool.read")
"""Noise from a pool that is filled once: a forked child goes on in the same pool."""


FORGETFUL: Final[tuple[Patch, ...]] = (
    ("dither_client", "ledger.py", "    if not added.rowcount:\n", "    if False:\n"),
)
"""An answer is taken again in the window that it was given in, with fresh noise."""

REDRAWN: Final[tuple[Patch, ...]] = (
    (
        "dither_client",
        "memo.py",
        "permanent_digits(secret, metric, index))",
        "permanent_digits(entropy.random_bytes(32), metric, index))",
    ),
)
"""A memoised answer that is drawn anew for each report: their average gives the truth away."""

OUTLIVING: Final[tuple[Patch, ...]] = (
    ("dither_client", "memo.py", "    write_note(connection, _NOTE, None)\n", "    pass\n"),
)
"""The secret of memoised answers survives a no of the person."""

BARE: Final[tuple[Patch, ...]] = (
    ("dither_client", "memo.py", "    return second_round(chain, answer)\n", "    return answer\n"),
)
"""Reports of a memoised index are the permanent answer itself, without a second round."""

CRASHES: Final[tuple[Patch, ...]] = (("dither_client", _SAMPLING, _SAMPLE, "    return 1 // 0\n"),)
"""Nothing can be recorded."""


@dataclass(frozen=True)
class Audited:
    """How an audit ended."""

    status: int
    found: dict[str, Any]
    err: str

    @property
    def problems(self) -> str:
        """Everything that is wrong, by lines."""
        return "\n".join(self.found["problems"])


def audit(*options: str, folder: Path | None = None, patches: Iterable[Patch] = ()) -> Audited:
    """Run ``dither audit --json``, on a copy of the packages with these patches where there are any."""
    paths = [] if folder is None else [str(mutated_rooms(folder, patches))]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *_inherited()])}
    done = subprocess.run(
        [sys.executable, "-c", RUN, "audit", "--json", *options],
        env=environ,
        capture_output=True,
        text=True,
        timeout=HANG_LIMIT_S,
        check=False,
    )
    return Audited(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


def _inherited() -> list[str]:
    inherited = os.environ.get("PYTHONPATH", "")
    return inherited.split(os.pathsep) if inherited else []
