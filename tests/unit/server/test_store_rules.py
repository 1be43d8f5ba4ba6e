"""What a store must be: every rule, and the words in which it refuses."""

from pathlib import Path

import pytest

from dither_server.settings import Settings
from dither_server.store_rules import (
    StoreRefused,
    check_config,
    check_definition,
    check_meta,
    expected_meta,
    high_water,
)

GOOD = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory": "268435456",
    "maxmemory-policy": "noeviction",
}


def _settings(**changes):
    return Settings(store_url="unix:///s", registry=Path("r"), keys_file=Path("k"), **changes)


def test_a_durable_store_is_fit():
    """A store with the settings of the design is accepted."""
    check_config(GOOD, _settings())
    check_meta(expected_meta(_settings()), _settings())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"appendonly": "no"}, "appendonly no"),
        ({"appendfsync": "everysec"}, "appendfsync everysec"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy allkeys-lru"),
        ({"maxmemory": "0"}, "no maxmemory"),
    ],
)
def test_a_store_that_may_lose_data_is_refused(change, words):
    """Each option that would break the promise of a 202 is named with its value."""
    with pytest.raises(StoreRefused, match=words):
        check_config(GOOD | change, _settings(store_durable=True))


def test_a_replica_is_no_reason_not_to_sync():
    """With DITHER_ACK=replica the primary syncs as well, so that no single loss of a machine is one of data."""
    check_config(GOOD, _settings(ack="replica"))
    with pytest.raises(StoreRefused, match="DITHER_ACK=replica it must be always"):
        check_config(GOOD | {"appendfsync": "everysec"}, _settings(ack="replica"))


def test_memory_acknowledgement_needs_no_file_and_still_no_eviction():
    """DITHER_ACK=memory drops the rules about the disk and keeps those about eviction."""
    settings = _settings(ack="memory")
    check_config(GOOD | {"appendonly": "no", "appendfsync": "no"}, settings)
    with pytest.raises(StoreRefused, match="noeviction"):
        check_config(GOOD | {"maxmemory-policy": "volatile-ttl"}, settings)


def test_a_hidden_configuration_needs_the_operators_word():
    """Where CONFIG is hidden, the operator vouches for the store or it is refused."""
    check_config(None, _settings(store_durable=True))
    with pytest.raises(StoreRefused, match="DITHER_STORE_DURABLE=1"):
        check_config(None, _settings())


@pytest.mark.parametrize(
    ("maxmemory_mb", "partitions", "nodes", "mark_mb"),
    [
        (1024, 8, 1, 32),  # a quarter of it, in eight parts
        (512, 8, 1, 16),
        (8192, 8, 1, 64),  # never more than so much
        (4096, 48, 3, 64),  # sixteen on each node
        (1024, 48, 3, 16),
        (1024, 10, 3, 64),  # four on the fullest node
    ],
)
def test_the_marks_of_a_node_fit_into_a_quarter_of_its_memory(maxmemory_mb, partitions, nodes, mark_mb):
    """Entries take up to three times their size: batches of one report fill at most three quarters."""
    config = GOOD | {"maxmemory": str(maxmemory_mb << 20)}
    assert high_water(config, _settings(partitions=partitions), nodes) == mark_mb << 20


def test_a_hidden_memory_limit_leaves_the_usual_mark():
    """Where CONFIG is hidden there is nothing to fit into."""
    assert high_water(None, _settings()) == 64 << 20
    assert high_water(None, _settings(high_water_bytes=1000)) == 1000


def test_marks_that_are_never_reached_are_refused(caplog):
    """More than the memory is a mistake by both numbers, more than a quarter of it a warning."""
    config = GOOD | {"maxmemory": str(256 << 20)}
    with pytest.raises(StoreRefused, match=r"maxmemory 268435456, less than 8 times .*=33554433"):
        high_water(config, _settings(high_water_bytes=(32 << 20) + 1))
    assert high_water(config, _settings(high_water_bytes=32 << 20)) == 32 << 20
    assert "only 8388608 are sure to fit" in caplog.text
    caplog.clear()
    assert high_water(config, _settings(high_water_bytes=8 << 20)) == 8 << 20
    assert caplog.text == ""


@pytest.mark.parametrize(("name", "value"), [("partitions", "4"), ("layout", "1")])
def test_another_creation_is_refused(name, value):
    """A store made for another number of partitions or another layout is refused by both numbers."""
    found = expected_meta(_settings()) | {name: value}
    with pytest.raises(StoreRefused, match=rf"{name} {value}, this server wants \d"):
        check_meta(found, _settings())


def test_a_changed_meaning_is_refused_and_a_changed_description_is_not():
    """The hash decides: words about a metric may change, its meaning may not."""
    check_definition("m", 1, b'{"params": "a", "x": 1}', '{"params": "a"}')
    with pytest.raises(StoreRefused, match=r"'m' version 1.*meaning changed without a new version"):
        check_definition("m", 1, b'{"params": "b"}', '{"params": "a"}')


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[]", b"\xff"])
def test_a_damaged_definition_is_refused(damaged):
    """A definition that no server wrote is not taken for agreement."""
    with pytest.raises(StoreRefused, match="damaged definition"):
        check_definition("m", 1, damaged, '{"params": "a"}')
