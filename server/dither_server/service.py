"""What the routes share: one object per process, built once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dither_protocol.errors import RegistryError
from dither_protocol.registry import Registry
from dither_protocol.registry.envelope import SignedRegistry, open_registry
from dither_server.auth import Keyring
from dither_server.quota import Quotas
from dither_server.settings import ConfigurationError, Settings
from dither_server.store import Store

Clock = Callable[[], datetime]
"""Gives the time, aware, in UTC."""


def utc_now() -> datetime:
    """The clock of the machine."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Service:
    """The settings and what was built from them; ``signed`` is the registry's envelope, where it has one."""

    settings: Settings
    registry: Registry
    keyring: Keyring
    store: Store
    quotas: Quotas
    clock: Clock
    signed: SignedRegistry | None = None


def build_service(settings: Settings, clock: Clock = utc_now) -> Service:
    """Read the files that the settings name, and make a client of the store (which connects later).

    Raises:
        ConfigurationError: the registry or the keys file cannot be read, or breaks a rule; the store's folder is not
            there.
    """
    if settings.store_path is not None and not settings.store_path.is_dir():
        raise ConfigurationError("DITHER_STORE_PATH", "is no folder")
    try:
        registry, signed = open_registry(settings.registry.read_bytes())
    except OSError as error:
        raise ConfigurationError("registry", f"cannot be read ({error.strerror})") from None
    except RegistryError as error:
        raise ConfigurationError("registry", str(error)) from None
    keyring = Keyring(settings.keys_file, clock)
    store = Store(settings, registry, signed)
    return Service(settings, registry, keyring, store, Quotas(store.take_quota), clock, signed)
