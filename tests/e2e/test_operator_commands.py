"""What an operator does in another shell beside `dither serve`: look at it, and read its logs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from dither_cli.exit_codes import ExitCode
from support.serve_process import HANG_LIMIT_S, ServeProcess, wait_until


def _dither(state_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DITHER_")}
    environ |= {"DITHER_HOME": str(state_dir), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", "from dither_cli.entry import main; main()", *arguments],
        env=environ, capture_output=True, text=True, timeout=HANG_LIMIT_S, check=False,
    )  # fmt: skip


def _lines(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def test_an_operator_looks_at_a_running_service(tmp_path: Path) -> None:
    """Without any option: address and key are in the state directory. The logs are JSON where that is asked for."""
    serve = ServeProcess(tmp_path / "state", environ={"DITHER_LOG": "json"})
    with serve.kept():
        serve.post(reports=30)
        serve.wait_counted(30)
        state = serve.state_dir

        status = _dither(state, "status")
        assert (status.returncode, status.stderr) == (ExitCode.OK, ""), status
        assert "no alarms" in status.stdout
        assert "workers: 1 living, serve-" in status.stdout
        assert ["dark_mode", "30", "30"] in [line.split()[:3] for line in status.stdout.splitlines()]

        metrics = _dither(state, "metrics")
        assert ["dark_mode", "1", "boolean"] in [line.split()[:3] for line in metrics.stdout.splitlines()]
        estimates = _dither(state, "estimates", "dark_mode")
        assert (estimates.returncode, "n = 30" in estimates.stdout) == (ExitCode.OK, True), estimates

        (estimator,) = [each for each in serve.family if "dither_estimator.worker" in each.cmdline()]
        estimator.suspend()
        try:
            wait_until(lambda: _dither(state, "status").returncode == ExitCode.FAILED, "an alarm")
            late = _dither(state, "status")
            assert "No estimator worker is running" in late.stdout
        finally:
            estimator.resume()

    for log in ("ingest.log", "estimator.log"):
        lines = _lines(state / "logs" / log)
        assert all(line.keys() >= {"time", "level", "logger", "process", "message"} for line in lines)
    assert any("Listening at" in line["message"] for line in _lines(state / "logs" / "ingest.log"))

    gone = _dither(state, "status")
    assert (gone.returncode, gone.stdout) == (ExitCode.SERVICE, "")
    assert "does not answer" in gone.stderr
    assert "Traceback" not in gone.stderr
