"""Everything that is configured, read once from the environment.

Sizes end in ``_bytes``, durations in ``_s``. A wrong value is an error that names its variable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from dither_protocol.storage import DEFAULT_PARTITIONS, MAX_PARTITIONS

STORE_SCHEMES: Final = ("redis", "rediss", "unix")
_PREFIX: Final = "DITHER_"
_LATER_ACKS: Final = ("replica",)


class ConfigurationError(Exception):
    """The service cannot run as it is configured. ``name`` says which setting or file is wrong."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


def mask_url(url: str) -> str:
    """``url`` without its password and without its query, which may hold one as well."""
    parts = urlsplit(url)
    account, at, host = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    masked = f"{user}:***" if colon else user
    return f"{parts.scheme}://{masked}{at}{host}{parts.path}" + ("?***" if parts.query else "")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one server process runs.

    Attributes:
        store_url: the Redis or Valkey server, ``redis://``, ``rediss://`` or ``unix://``.
        registry: path of the registry's TOML file.
        keys_file: path of the JSON file with the hashes of the API keys.
        ack: when a batch is acknowledged: ``fsync``, once it is on the store's disk; ``memory``, before.
        store_durable: the operator vouches for a store that hides its configuration.
        partitions: into how many partitions the store is split; fixed at its creation.
        high_water_bytes: backlog of one partition, bytes of stream entries, from which it takes no more.
        bind: address and port to listen on, or ``unix:PATH``.
        workers: number of server processes.
        threads: number of threads of each.
        log: ``human`` or ``json`` lines.
    """

    store_url: str
    registry: Path
    keys_file: Path
    ack: str = "fsync"
    store_durable: bool = False
    partitions: int = DEFAULT_PARTITIONS
    high_water_bytes: int = 64 << 20
    bind: str = "127.0.0.1:8787"
    workers: int = 2
    threads: int = 8
    log: str = "human"

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={mask_url(value) if name == 'store_url' else value!r}"
            for name, value in vars(self).items()
        )
        return f"Settings({shown})"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the variables ``DITHER_*``; an empty one counts as not set.

        Raises:
            ConfigurationError: a required variable is missing, or a value is not one that it takes.
        """
        given = {name: value for name, value in environ.items() if value and name.startswith(_PREFIX)}
        missing = [_PREFIX + name.upper() for name in _REQUIRED if _PREFIX + name.upper() not in given]
        if missing:
            raise ConfigurationError(missing[0], "is required")
        found = {}
        for name, read in _READERS.items():
            variable = _PREFIX + name.upper()
            if variable in given:
                found[name] = read(variable, given[variable])
        return cls(**found)  # type: ignore[arg-type]  # each reader gives its field's type


def _store_url(variable: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigurationError(variable, "is not a URL") from None
    if parts.scheme not in STORE_SCHEMES or not port_is_a_number:
        raise ConfigurationError(variable, "must begin with " + ", ".join(f"{s}://" for s in STORE_SCHEMES))
    if not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise ConfigurationError(variable, "names no server")
    return value


def _path(_: str, value: str) -> Path:
    return Path(value)


def _ack(variable: str, value: str) -> str:
    if value in _LATER_ACKS:
        raise ConfigurationError(variable, f"'{value}' is not supported yet; use fsync or memory")
    return _choice("fsync", "memory")(variable, value)


def _choice(*words: str) -> Callable[[str, str], str]:
    def read(variable: str, value: str) -> str:
        if value not in words:
            raise ConfigurationError(variable, "must be one of " + ", ".join(words))
        return value

    return read


def _flag(variable: str, value: str) -> bool:
    return _choice("0", "1")(variable, value) == "1"


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    def read(variable: str, value: str) -> int:
        # isdecimal alone would let other scripts' digits through, and a long text of digits costs time
        if not (value.isascii() and value.isdecimal() and len(value) < 20 and low <= int(value) <= high):
            raise ConfigurationError(variable, f"must be a whole number from {low} to {high}")
        return int(value)

    return read


def _bind(variable: str, value: str) -> str:
    if value.startswith("unix:") and len(value) > len("unix:"):
        return value
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 65_536):
        raise ConfigurationError(variable, "must be ADDRESS:PORT or unix:PATH")
    return value


_REQUIRED: Final = ("store_url", "registry", "keys_file")
_READERS: Final[dict[str, Callable[[str, str], object]]] = {
    "store_url": _store_url,
    "registry": _path,
    "keys_file": _path,
    "ack": _ack,
    "store_durable": _flag,
    "partitions": _whole(1, MAX_PARTITIONS),
    "high_water_bytes": _whole(1, 2**50),
    "bind": _bind,
    "workers": _whole(1, 256),
    "threads": _whole(1, 256),
    "log": _choice("human", "json"),
}
