"""Files: private ones written whole or not at all, and errors of the system that say which file they are about."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dither_protocol.registry import Registry
from dither_protocol.registry.envelope import open_registry


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` by a file with mode 0600; a crash leaves the old or the new one, never half of it."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def write_whole(path: Path, text: str) -> None:
    """Replace ``path`` by a file that others may read; whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with naming(path), open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Let an `OSError` inside name this file: the system forgets it once the file is open."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def read_registry(path: Path) -> Registry:
    """Read a registry, TOML or the signed form; no signature is looked at.

    Raises:
        OSError: the file cannot be read; it is named.
        RegistryError: it breaks a rule.
    """
    with naming(path):
        data = path.read_bytes()
    return open_registry(data)[0]


def write_problem(path: Path) -> str | None:
    """Why ``path`` could not be written, as far as that can be told beforehand; None where it looks well."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        return f"the folder of {path} does not exist"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return f"{path} cannot be written"
    return None
