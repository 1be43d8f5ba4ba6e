"""``dither demo`` as a person runs it, small."""

import json
import subprocess
import sys
from pathlib import Path

import psutil


def test_the_demo_counts_everything_and_covers_the_truth(tmp_path: Path) -> None:
    """Exit 0, a line of verdict, a result file whose figures agree, and no process left."""
    file = tmp_path / "result.json"
    command = [
        str(Path(sys.executable).with_name("dither")),
        "demo",
        "--devices",
        "3000",
        "--json",
        str(file),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PASS" in ran.stdout
    result = json.loads(file.read_text())
    assert result["passed"] is True
    assert result["problems"] == []
    assert [m["mechanism"] for m in result["metrics"]] == ["rr", "grr", "oue", "sue"]
    for metric in result["metrics"]:
        assert metric["sent"] == metric["accepted"] == metric["counted"] == 3_200
        assert {"value", "truth", "estimate", "lower", "upper", "covers"} == metric["values"][0].keys()
    left = [
        p for p in psutil.process_iter(["cmdline"]) if "dither-demo-" in " ".join(p.info["cmdline"] or [])
    ]
    assert left == []
