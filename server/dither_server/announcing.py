"""Metric definitions in the store: what the server announces, and what it finds there.

The worker and the API read them, so that neither needs the registry's file. ``client`` is the redis-py client that
`dither_server.store` opened: that module alone may import its package.
"""

import logging
from importlib.resources import files
from typing import Any, Final

from dither_protocol.errors import RegistryError
from dither_protocol.registry import Metric, Registry, decode_definition, encode_definition
from dither_protocol.registry.envelope import SignedRegistry
from dither_protocol.storage import META_KEY, METRICS_KEY, metric_key, versions_key
from dither_server.store_rules import StoreRefused, check_definition

_LOG: Final = logging.getLogger(__name__)
_REVISION: Final = files("dither_server").joinpath("scripts/revision.lua").read_text("utf-8")


def announce(client: Any, registry: Registry, signed: SignedRegistry | None = None) -> None:
    """Write the definition of each metric's current version.

    Args:
        client: of the store.
        registry: whose metrics are announced.
        signed: its envelope, where it has one.

    Raises:
        StoreRefused: a version is there already, with another meaning; or a later revision of the registry is.
    """
    _check_revision(client, signed, note=False)
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
    # Noted last: a registry that was refused must not keep the one before it from starting again.
    _check_revision(client, signed, note=True)


def _check_revision(client: Any, signed: SignedRegistry | None, *, note: bool) -> None:
    """Refuse to go back: devices that have seen the later revision would keep it, and the others would not."""
    if signed is None:
        if note:
            return
        known = client.hget(META_KEY, "registry_revision")
        if known is not None:
            _LOG.warning(
                "the registry is not signed, and revision %d of it was: devices that pin a key keep that",
                int(known),
            )
        return
    before = client.eval(_REVISION, 1, META_KEY, signed.revision, signed.digest, int(note))
    if not before:
        return
    if int(before[0]) == signed.revision:
        raise StoreRefused(
            f"knows revision {signed.revision} of the registry with other content; sign it again as a later one"
        )
    raise StoreRefused(
        f"knows revision {int(before[0])} of the registry, and this is revision {signed.revision}: "
        "devices would refuse it; sign it again as a later one"
    )


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
