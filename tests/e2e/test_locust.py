"""The locust file against a real server, as `load_tests/README.md` says to run it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from dither_cli.parts import example_registry
from dither_cli.service import Service
from dither_cli.simulate_place import successor

LOCUSTFILE = Path(__file__).parents[2] / "load_tests" / "locustfile.py"
SECONDS = 20


def test_locust_runs_for_twenty_seconds_without_a_failure() -> None:
    """Devices with old registries and wrong clocks among them: each answer is right, everything is counted once."""
    with tempfile.TemporaryDirectory(prefix="d-") as name:
        folder = Path(name)
        newer = successor(example_registry().read_text("utf-8"))
        assert newer is not None
        current = folder / "registry.toml"
        current.write_text(newer, "utf-8")
        with Service.start(example_registry(), state_dir=folder / "state"):
            pass  # so that the server has had the versions that some devices still have
        with Service.start(current, state_dir=folder / "state") as service:
            ran = _locust(service)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    verdict = re.search(r"verdict: PASS, accepted (\d+), counted (\d+), rejected (\d+)", said)
    assert verdict, said
    accepted, counted, rejected = map(int, verdict.groups())
    assert accepted == counted > 100
    assert rejected > 0
    total = re.search(r"Aggregated\s+(\d+)\s+(\d+)\(", said)
    assert total, said
    assert int(total[1]) > 100
    assert int(total[2]) == 0


def _locust(service: Service) -> subprocess.CompletedProcess[str]:
    """A process of its own: locust changes the standard library for the whole interpreter."""
    options = ["--headless", "--only-summary", "--users", "10", "--spawn-rate", "10", "--stop-timeout", "60"]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("DITHER_", "LOCUST_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--host", service.base_url,
         "--run-time", f"{SECONDS}s", *options],
        env=environ
        | {
            "DITHER_INGEST_KEY": service.ingest_key,
            "DITHER_OPERATOR_TOKEN": service.operator_token,
            "DITHER_OLD_REGISTRY": str(example_registry()),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )  # fmt: skip
