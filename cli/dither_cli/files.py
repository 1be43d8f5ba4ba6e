"""Small private files, written whole or not at all."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by a file with mode 0600; a crash leaves the old or the new one, never half of it."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
