"""Facts of the machine that figures depend on; none that would tell whose machine it is."""

import os
import platform
from pathlib import Path
from typing import Final

_CPUINFO: Final = Path("/proc/cpuinfo")


def machine() -> dict[str, str | int]:
    """Processor, number of them, Python, system."""
    model = "unknown"
    if _CPUINFO.exists():
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
        )
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def machine_text() -> str:
    """The same in one line."""
    found = machine()
    return f"{found['cores']} x {found['cpu']}, Python {found['python']}, {found['system']}"
