"""What a store must be before it may take batches. Pure: `dither_server.store` asks, this module judges."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dither_protocol.storage import LAYOUT
from dither_server.settings import ConfigurationError, Settings

CONFIG_NAMES: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
"""The options of the store that the rules look at."""

Config = Mapping[str, str]


class StoreUnavailable(Exception):
    """The store cannot do it now; nothing was changed, or the retry will find that it was. ``kind`` is one word."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the store is unavailable ({kind})")
        self.kind = kind


class StoreRefused(ConfigurationError):
    """The store answers, and must not be used as it is: another layout, not durable, or another meaning."""

    def __init__(self, problem: str) -> None:
        super().__init__("store", problem)


@dataclass(frozen=True)
class PublishedVersion:
    """What the estimator published about one version of a metric.

    Attributes:
        version: of the metric.
        definition: JSON, as announced.
        estimates: JSON documents by field (`dither_protocol.storage.estimate_field`).
    """

    version: int
    definition: bytes
    estimates: Mapping[str, bytes]


@dataclass(frozen=True)
class Published:
    """What the estimator published about a metric.

    Attributes:
        versions: by rising version; empty where the metric was never announced.
        combined: JSON documents over several versions, by field.
    """

    versions: Sequence[PublishedVersion] = ()
    combined: Mapping[str, bytes] = field(default_factory=dict)


def expected_meta(settings: Settings) -> dict[str, str]:
    """What ``dither:meta`` must hold: written at the store's creation, compared ever after."""
    return {"layout": str(LAYOUT), "partitions": str(settings.partitions)}


def check_meta(found: Mapping[str, str], settings: Settings) -> None:
    """Refuse a store that was created with other numbers.

    Raises:
        StoreRefused: naming both numbers.
    """
    for name, expected in expected_meta(settings).items():
        if found.get(name) != expected:
            raise StoreRefused(f"was created with {name} {found.get(name)}, this server wants {expected}")


def check_config(config: Config | None, settings: Settings) -> None:
    """Refuse a store that could lose or evict what was acknowledged.

    Args:
        config: the options `CONFIG_NAMES`; None where the store hides them.
        settings: what the operator asked for, or vouches for.

    Raises:
        StoreRefused: naming the option and the value that it must have.
    """
    if config is None:
        if not settings.store_durable:
            raise StoreRefused(
                "hides its CONFIG; if it is durable and never evicts, set DITHER_STORE_DURABLE=1"
            )
        return
    if settings.ack == "fsync":
        for option, needed in (("appendonly", "yes"), ("appendfsync", "always")):
            if config.get(option) != needed:
                raise StoreRefused(
                    f"has {option} {config.get(option)}; with DITHER_ACK=fsync it must be {needed}"
                )
    if eviction_problem(config):
        raise StoreRefused(eviction_problem(config))


def eviction_problem(config: Config) -> str:
    """Why the store might drop keys or fill the machine; empty where it will not."""
    if config.get("maxmemory-policy") != "noeviction":
        return f"has maxmemory-policy {config.get('maxmemory-policy')}; it must be noeviction"
    if config.get("maxmemory", "0") == "0":
        return "has no maxmemory; it must be set, so that a full store refuses instead of being killed"
    return ""


def check_definition(name: str, version: int, announced: bytes, own: str) -> None:
    """Refuse a metric whose reports would mean something else than those already counted under its version.

    Args:
        name: of the metric.
        version: of the metric.
        announced: the definition in the store.
        own: the definition that this server's registry gives.

    Raises:
        StoreRefused: the two have different hashes.
    """
    try:
        known = json.loads(announced)["params"]
    except (ValueError, KeyError, TypeError):
        raise StoreRefused(f"has a damaged definition of metric '{name}' version {version}") from None
    if known != json.loads(own)["params"]:
        raise StoreRefused(
            f"knows metric '{name}' version {version} by another definition: "
            "its meaning changed without a new version; raise the version in the registry"
        )
