"""What a store must be before it may take batches. Pure: `dither_server.store` asks, this module judges."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dither_protocol.storage import LAYOUT
from dither_server.settings import ConfigurationError, Settings

CONFIG_NAMES: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
"""The options of the store that the rules look at."""

Config = Mapping[str, str]

LOST_KINDS: Final = ("connection", "timeout", "loading", "readonly", "cluster")
"""Kinds of `StoreUnavailable` after which the store that answers next may be another one."""

ELSEWHERE_KINDS: Final = ("readonly", "cluster")
"""Those after which the URL may lead elsewhere, and open connections never will."""

_LOG: Final = logging.getLogger(__name__)
_HIGH_WATER_BYTES: Final = 64 << 20
_SHARE_OF_MEMORY: Final = 4


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
        estimates: JSON documents by (label of the window, `dither_protocol.storage.estimate_field`).
    """

    version: int
    definition: bytes
    estimates: Mapping[tuple[str, str], bytes]


@dataclass(frozen=True)
class Published:
    """What the estimator published about a metric.

    Attributes:
        versions: by rising version; empty where the metric was never announced.
        combined: JSON documents over several versions, by the same.
        last: label of the last window that was read, where the selection has later ones; None where it has not.
    """

    versions: Sequence[PublishedVersion] = ()
    combined: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    last: str | None = None

    @property
    def has_estimates(self) -> bool:
        """Whether there is any."""
        return bool(self.combined) or any(version.estimates for version in self.versions)


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
    if settings.ack in ("fsync", "replica"):
        for option, needed in (("appendonly", "yes"), ("appendfsync", "always")):
            if config.get(option) != needed:
                raise StoreRefused(
                    f"has {option} {config.get(option)}; with DITHER_ACK={settings.ack} it must be {needed}"
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


def text_map(found: Mapping[Any, Any]) -> dict[str, str]:
    """Names and values as text, whether the store's client gives text or bytes."""
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def least_memory(configs: Sequence[Config | None]) -> Config | None:
    """The options of the node with the least memory; None where any node hides its own."""
    visible = [config for config in configs if config is not None]
    return min(visible, key=lambda config: int(config["maxmemory"])) if len(visible) == len(configs) else None


def high_water(config: Config | None, settings: Settings, nodes: int = 1) -> int:
    """Backlog of one partition, bytes, from which it takes no more.

    Where the operator names none, the marks of all partitions of a node fill a quarter of its memory: one byte of an
    entry takes up to three bytes of memory (measured for batches of one report, ids to be remembered included), and
    what is left holds the counters. A mark of the operator's is taken as it is, with a warning where it is more.

    Args:
        config: the options `CONFIG_NAMES`, with the least ``maxmemory`` of all nodes; None where it is hidden.
        settings: what the operator asked for.
        nodes: over how many nodes the partitions are spread.

    Raises:
        StoreRefused: the operator's marks are never reached, since the memory ends before.
    """
    maxmemory = int(config.get("maxmemory", "0")) if config else 0
    here = -(-settings.partitions // nodes)
    fitting = max(1, maxmemory // (_SHARE_OF_MEMORY * here)) if maxmemory else _HIGH_WATER_BYTES
    asked = settings.high_water_bytes
    if asked is None:
        return min(_HIGH_WATER_BYTES, fitting)
    if maxmemory and asked * here > maxmemory:
        raise StoreRefused(
            f"has maxmemory {maxmemory}, less than {here} times DITHER_HIGH_WATER_BYTES={asked}: "
            "it would be full long before a partition is"
        )
    if maxmemory and asked > fitting:
        _LOG.warning(
            "DITHER_HIGH_WATER_BYTES=%d: only %d are sure to fit into the store's memory", asked, fitting
        )
    return asked


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
