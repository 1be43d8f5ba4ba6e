"""The example of a workflow: it is one, and its commands do as written what they say, in a real git repository."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dither_cli.main import cli
from dither_protocol.registry.envelope import parse_envelope

FILE = Path(__file__).parents[2] / "examples" / "registry-ci" / "registry.yml"
WORKFLOW: dict[Any, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
REGISTRY = """
schema = 1
project = "example"
[metrics.browser]
version = 3
type = "categorical"
description = "Browser that opens links"
categories = ["a", "b", "c"]
epsilon = 1.0
"""


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    command = ["/usr/bin/env", "git", *identity, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a change, with the base branch as a remote one, as `actions/checkout` leaves it."""
    base, change = tmp_path / "base", tmp_path / "change"
    base.mkdir()
    _git(base, "init")
    (base / "readme").write_text("x")
    _git(base, "add", ".")
    _git(base, "commit", "-m", "first")
    _git(tmp_path, "clone", str(base), str(change))
    (change / "telemetry").mkdir()
    (tmp_path / "temp").mkdir()
    return change


def _publish(checkout: Path, text: str) -> None:
    """Put a registry on the base branch."""
    base = checkout.parent / "base"
    (base / "telemetry").mkdir(exist_ok=True)
    (base / "telemetry" / "registry.toml").write_text(text)
    _git(base, "add", ".")
    _git(base, "commit", "-m", "registry")
    _git(checkout, "fetch", "origin")


def _step(job: str, name: str) -> str:
    (found,) = (step["run"] for step in WORKFLOW["jobs"][job]["steps"] if step.get("name") == name)
    return str(found)


def _run(checkout: Path, job: str, name: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """A step as the runner runs it: bash, ending at the first failure."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(checkout.parent),
        "GITHUB_BASE_REF": "main",
        "GITHUB_RUN_NUMBER": "41",
        "RUNNER_TEMP": str(checkout.parent / "temp"),
        **WORKFLOW["env"],
        **more,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _step(job, name)]
    return subprocess.run(
        command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_it_is_a_workflow() -> None:
    """Triggers, jobs and steps; every job may only read, and the path it watches is the one it checks."""
    triggers = WORKFLOW[True]  # to YAML 1.1 the key `on` is true
    assert triggers.keys() == {"pull_request", "push"}
    for trigger in triggers.values():
        assert trigger["paths"] == [WORKFLOW["env"]["REGISTRY"]]
    for job in WORKFLOW["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert WORKFLOW["jobs"]["sign"]["needs"] == "check"


def test_a_good_change_passes_and_a_breaking_one_does_not(checkout: Path) -> None:
    """The move is in the log; a notice passes."""
    _publish(checkout, REGISTRY)
    changed = checkout / WORKFLOW["env"]["REGISTRY"]
    for text, code, says in (
        (REGISTRY.replace("links", "a link"), 0, "compatible metrics.browser.description"),
        (REGISTRY + "min_reports = 50\n", 0, "notice metrics.browser.min_reports"),
        (REGISTRY.replace("epsilon = 1.0", "epsilon = 2.0"), 1, "-> raise version to 4"),
    ):
        changed.write_text(text)
        assert _run(checkout, "check", "Check").returncode == 0
        compared = _run(checkout, "check", "Compare with the base branch")
        assert (compared.returncode, says in compared.stdout) == (code, True), (
            compared.stdout + compared.stderr
        )


def test_a_broken_registry_fails_the_check(checkout: Path) -> None:
    """Before anything is compared."""
    (checkout / WORKFLOW["env"]["REGISTRY"]).write_text(REGISTRY.replace("epsilon = 1.0", "epsilon = -1.0"))
    assert _run(checkout, "check", "Check").returncode == 1


def test_the_first_registry_has_nothing_to_be_compared_with(checkout: Path) -> None:
    """The base branch has none yet: that is no failure."""
    (checkout / WORKFLOW["env"]["REGISTRY"]).write_text(REGISTRY)
    compared = _run(checkout, "check", "Compare with the base branch")
    assert (compared.returncode, "nothing to compare" in compared.stdout) == (0, True), compared.stderr


def test_what_was_merged_is_signed_and_the_key_is_gone(checkout: Path) -> None:
    """The revision is the run's number; a wrong public key fails the job."""
    (checkout / WORKFLOW["env"]["REGISTRY"]).write_text(REGISTRY)
    keys = checkout.parent / "keys"
    public = CliRunner().invoke(cli, ["registry", "keygen", "--out", str(keys)]).stdout.strip()
    other = CliRunner().invoke(cli, ["registry", "keygen", "--out", str(keys / "other")]).stdout.strip()
    pem = next(keys.glob("*.pem")).read_text()
    signed = _run(checkout, "sign", "Sign", SIGNING_KEY=pem, PUBLIC_KEY=public)
    assert signed.returncode == 0, signed.stderr
    assert parse_envelope((checkout / "registry.signed.json").read_bytes()).revision == 41
    assert list((checkout.parent / "temp").iterdir()) == []
    assert _run(checkout, "sign", "Sign", SIGNING_KEY=pem, PUBLIC_KEY=other).returncode == 1
    assert _run(checkout, "sign", "Sign", SIGNING_KEY="x", PUBLIC_KEY=public).returncode == 1
    assert list((checkout.parent / "temp").iterdir()) == []
