"""The README's example and curl line run as they stand."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dither_cli.service import Service

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def _block(language: str, word: str) -> str:
    """The one fenced block of this language that holds the word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return str(found)


def test_the_example_and_the_curl_line_give_an_estimate_with_its_interval(tmp_path: Path) -> None:
    """Two hundred devices answer, and the estimate over all of them is published."""
    example = tmp_path / "example.py"
    example.write_text(_block("python", "dither_client"))
    with (
        tempfile.TemporaryDirectory(prefix="d-") as folder,
        Service.start(state_dir=Path(folder) / "s") as service,
    ):
        environ = os.environ | {
            "DITHER_ENDPOINT": service.base_url,
            "DITHER_INGEST_KEY": service.ingest_key,
            "DITHER_OPERATOR_TOKEN": service.operator_token,
        }
        subprocess.run([sys.executable, str(example)], cwd=ROOT, env=environ, check=True, timeout=120)
        curl = ["bash", "-c", _block("sh", "curl")]
        deadline = time.monotonic() + 60
        estimates: list[dict[str, object]] = []
        while not (estimates and estimates[0]["n"] == 200) and time.monotonic() < deadline:
            time.sleep(0.2)
            answer = subprocess.run(curl, env=environ, check=True, timeout=30, capture_output=True)
            estimates = json.loads(answer.stdout)["versions"][0]["estimates"]
    assert estimates[0]["n"] == 200
    values = estimates[0]["values"]
    assert isinstance(values, list)
    low, high = values[1]["interval"]
    assert low < values[1]["estimate"] < high


def test_the_figures_of_the_report_followed_by_hand_are_right() -> None:
    """Weights, hash, entry and estimate stand in the README as the code computes them."""
    import numpy as np  # noqa: PLC0415  only this test needs it

    from dither_cli.parts import example_registry  # noqa: PLC0415
    from dither_estimator import estimate  # noqa: PLC0415
    from dither_protocol import load_registry  # noqa: PLC0415
    from dither_protocol.storage import Cell, encode_entry  # noqa: PLC0415

    metric = load_registry(example_registry()).metric("dark_mode")
    oracle = metric.mechanism
    text = " ".join(README.split())
    for number in (oracle.truth_weight, oracle.lie_weight, oracle.total_weight):  # type: ignore[attr-defined]
        assert f"{number:,}" in text
    assert metric.params_hash in text
    cell = Cell("dark_mode", 1, "2026-W48", (("os", "linux"),)).name
    entry = encode_entry([(cell, [oracle.pack(0)])])
    assert f"a {len(entry)}-byte stream entry" in text
    assert entry[:9].hex(" ") == "01 1d 00 04 00 01 00 00 00"
    result = estimate(oracle, np.array([92, 108]), 200)
    assert f"= {100 * result.estimate[1]:.1f} %" in text
    assert f"from {100 * result.lower[1]:.1f} % to {100 * result.upper[1]:.1f} %" in text
