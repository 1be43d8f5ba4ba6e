"""Metric definitions in the store: what the server announces, and what it finds there.

The worker and the API read them, so that neither needs the registry's file. ``client`` is the redis-py client that
`dither_server.store` opened: that module alone may import its package.
"""

import logging
from typing import Any, Final

from dither_protocol.errors import RegistryError
from dither_protocol.registry import Metric, Registry, decode_definition, encode_definition
from dither_protocol.storage import METRICS_KEY, metric_key, versions_key
from dither_server.store_rules import check_definition

_LOG: Final = logging.getLogger(__name__)


def announce(client: Any, registry: Registry) -> None:
    """Write the definition of each metric's current version.

    Raises:
        StoreRefused: a version is there already, with another meaning.
    """
    own = [(metric, encode_definition(registry, metric.name)) for metric in registry]
    with client.pipeline(transaction=False) as pipe:
        for metric, text in own:
            pipe.set(metric_key(metric.name, metric.version), text, nx=True, get=True)
        announced = pipe.execute()
        for (metric, text), before in zip(own, announced, strict=True):
            if before is not None and before != text.encode():
                check_definition(metric.name, metric.version, before, text)
                pipe.set(metric_key(metric.name, metric.version), text)
            pipe.sadd(versions_key(metric.name), metric.version)
            pipe.sadd(METRICS_KEY, metric.name)
        pipe.execute()


def definitions(client: Any, name: str) -> dict[int, bytes]:
    """Every announced definition of a metric, by rising version."""
    versions = sorted(int(version) for version in client.smembers(versions_key(name)))
    if not versions:
        return {}
    texts = client.mget([metric_key(name, version) for version in versions])
    return {version: text for version, text in zip(versions, texts, strict=True) if text is not None}


def older_versions(client: Any, registry: Registry) -> list[Metric]:
    """Earlier versions of the registry's metrics: devices that have not fetched the new one are still heard.

    A definition that this version of Dither cannot read is left out, with a warning.
    """
    found = []
    for metric in registry:
        for version, definition in definitions(client, metric.name).items():
            if version == metric.version:
                continue
            try:
                found.append(decode_definition(definition))
            except RegistryError as error:
                _LOG.warning("metric %s version %d is not accepted any more: %s", metric.name, version, error)
    return found
