"""What an app gets: a bare install brings the SDK, and nothing of the server's."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import importlib.util, dither_client, dither_protocol
absent = [name for name in ("numpy", "scipy", "flask", "redis", "gunicorn", "click") if importlib.util.find_spec(name)]
assert not absent, absent
oracle = dither_protocol.mechanism("oue", 1.0, 10)
assert oracle.pack(dither_client.randomize(oracle, 3))
registry = {
    "schema": 1, "project": "p",
    "metrics": {"m": {"version": 1, "type": "boolean", "description": "d", "epsilon": 1.0, "mechanism": "rr"}},
}
client = dither_client.Client("http://127.0.0.1:9", registry, ingest_key="k")
assert client.record("m", True).status == "queued"
assert client.flush(0.2).pending == 1
"""


def test_a_bare_install_brings_the_sdk_alone(tmp_path: Path) -> None:
    """The wheel alone: record works, numpy, flask and redis are absent, `dither` says what it lacks."""
    python = tmp_path / "venv" / "bin" / "python"
    wheels = tmp_path / "wheels"
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=280)
    subprocess.run(
        [sys.executable, *pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT)], check=True, timeout=280
    )
    (wheel,) = wheels.glob("dither-*.whl")
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([str(python), *pip, "install", "-c", constraints, str(wheel)], check=True, timeout=280)
    subprocess.run([str(python), "-c", SCRIPT], cwd=tmp_path, check=True, timeout=60)
    ran = subprocess.run(
        [str(python.with_name("dither")), "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "dither[cli]" in ran.stderr
