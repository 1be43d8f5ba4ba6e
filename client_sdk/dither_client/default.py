"""One client for the whole program: ``init()`` once in the app, ``record()`` anywhere.

Libraries never call `init`; they call `record`, which does nothing until the app has decided.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dither_client.client import Client
from dither_client.paths import default_state_dir
from dither_client.recording import NO_VALUE, NoValue
from dither_client.registry_source import read_registry
from dither_client.results import FlushResult, RecordResult, RecordStatus
from dither_protocol.registry import Registry

_client: Client | None = None


def init(
    endpoint: str,
    registry: Registry | Mapping[str, Any] | str | Path,
    *,
    ingest_key: str,
    **settings: Any,
) -> Client:
    """Create the program's client; a second call shuts the first client down.

    Args:
        endpoint: base URL of the server.
        registry: the app's metrics.
        ingest_key: the app's key for the server.
        settings: as for `Client`; without ``state_dir`` the platform's place for the project is used.
    """
    global _client  # noqa: PLW0603  that is what a module-level default is
    loaded = read_registry(registry)
    settings.setdefault("state_dir", default_state_dir(loaded.project))
    shutdown()
    _client = Client(endpoint, loaded, ingest_key=ingest_key, **settings)
    return _client


def record(
    metric: str, value: bool | str | NoValue = NO_VALUE, dimensions: Mapping[str, str] | None = None
) -> RecordResult:
    """`Client.record` of the program's client; `disabled` before `init`."""
    if _client is None:
        return RecordResult(RecordStatus.DISABLED, "not_initialised")
    return _client.record(metric, value, dimensions)


def flush(timeout: float = 5.0) -> FlushResult:
    """`Client.flush` of the program's client."""
    if _client is None:
        return FlushResult(0, 0, 0, 0, 0, timed_out=False)
    return _client.flush(timeout)


def shutdown(timeout: float | None = None) -> bool:
    """`Client.shutdown` of the program's client; True where there is none."""
    global _client
    client, _client = _client, None
    return True if client is None else client.shutdown(timeout)
