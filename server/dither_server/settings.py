"""Everything that is configured, read once from the environment.

Sizes end in ``_bytes``, durations in ``_s``. A wrong value is an error that names its variable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dither_protocol.storage import DEFAULT_PARTITIONS, MAX_PARTITIONS
from dither_protocol.store_url import StoreUrlError, mask_store_url, parse_store_url

_PREFIX: Final = "DITHER_"


class ConfigurationError(Exception):
    """The service cannot run as it is configured. ``name`` says which setting or file is wrong."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one server process runs.

    Attributes:
        store_url: the Redis or Valkey server or cluster (`dither_protocol.store_url`).
        registry: path of the registry's TOML file.
        keys_file: path of the JSON file with the hashes of the API keys.
        ack: when a batch is acknowledged: ``memory``, once the store has it; ``fsync``, once it is on the store's
            disk; ``replica``, once in addition other stores have it in memory.
        replicas: how many other stores those are; only with ``replica``.
        store_durable: the operator vouches for a store that hides its configuration.
        partitions: into how many partitions the store is split; fixed at its creation.
        high_water_bytes: backlog of one partition, bytes of stream entries, from which it takes no more; None for
            what fits into the store's memory (`dither_server.store_rules.high_water`).
        store_path: a folder on the store's disk, where that is a disk of this machine.
        min_free_bytes: free space of that disk below which nothing more is taken.
        role: ``ingest`` serves devices alone, ``operator`` people alone, ``all`` both; what is not served is not there.
        bind: address and port to listen on, or ``unix:PATH``.
        workers: number of server processes.
        threads: number of threads of each.
        max_requests: requests after which a process is replaced by a fresh one; 0 for never.
        max_requests_jitter: up to so many more, drawn at random, so that not all are replaced at once.
        log: ``human`` or ``json`` lines.
    """

    store_url: str
    registry: Path
    keys_file: Path
    ack: str = "fsync"
    replicas: int = 1
    store_durable: bool = False
    partitions: int = DEFAULT_PARTITIONS
    high_water_bytes: int | None = None
    store_path: Path | None = None
    min_free_bytes: int = 256 << 20
    role: str = "all"
    bind: str = "127.0.0.1:8787"
    workers: int = 2
    threads: int = 32
    max_requests: int = 0
    max_requests_jitter: int = 0
    log: str = "human"

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={mask_store_url(value) if name == 'store_url' else value!r}"
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
        if "replicas" in found and found.get("ack") != "replica":
            raise ConfigurationError(_PREFIX + "REPLICAS", "needs DITHER_ACK=replica")
        return cls(**found)  # type: ignore[arg-type]  # each reader gives its field's type


def _store_url(variable: str, value: str) -> str:
    try:
        parse_store_url(value)
    except StoreUrlError as error:
        raise ConfigurationError(variable, str(error)) from None
    return value


def _path(_: str, value: str) -> Path:
    return Path(value)


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
    "ack": _choice("fsync", "memory", "replica"),
    "replicas": _whole(1, 16),
    "store_durable": _flag,
    "partitions": _whole(1, MAX_PARTITIONS),
    "high_water_bytes": _whole(1, 2**50),
    "store_path": _path,
    "min_free_bytes": _whole(0, 2**50),
    "role": _choice("all", "ingest", "operator"),
    "bind": _bind,
    "workers": _whole(1, 256),
    "threads": _whole(1, 256),
    "max_requests": _whole(0, 2**31),
    "max_requests_jitter": _whole(0, 2**31),
    "log": _choice("human", "json"),
}
