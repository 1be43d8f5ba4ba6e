"""Where the SDK keeps its state unless it is told: the place that each platform has for it.

Fifteen lines of our own; the library for it would cost more time at import than the rest of the SDK.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def default_state_dir(project: str, environ: Mapping[str, str] | None = None) -> Path:
    """The state directory of one project for the current user; nothing is created.

    Args:
        project: name of the project, as in its registry.
        environ: environment variables; the process's own by default. ``DITHER_STATE_DIR`` names another place.
    """
    environ = os.environ if environ is None else environ
    if environ.get("DITHER_STATE_DIR"):
        return Path(environ["DITHER_STATE_DIR"]) / project
    home = Path.home()
    if sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    return base / "dither" / project
