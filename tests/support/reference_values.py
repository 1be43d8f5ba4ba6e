"""The reference values in the folder beside this file, computed independently of this project's code."""

import json
from pathlib import Path
from typing import Any


def reference_rows(name: str) -> list[dict[str, Any]]:
    """The rows of ``reference/<name>.json``."""
    path = Path(__file__).parent / "reference" / f"{name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows
