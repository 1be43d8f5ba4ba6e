"""Several versions of a metric in the worker: published side by side and combined, whatever dies in between."""

from typing import Any

import pytest

from dither_estimator.store import Store
from dither_estimator.worker import Worker
from dither_protocol import storage
from dither_protocol.registry import Registry, encode_definition, registry_from_document
from dither_protocol.storage import Cell, encode_entry
from support.registries import COLORS
from support.store import Store as Valkey
from support.worker_store import (
    DAY,
    PARTITIONS,
    append_entry,
    dark_entry,
    new_worker,
    partition_keys,
    published_estimates,
)

pytestmark = pytest.mark.usefixtures("engine")


def _announce_shades(valkey: Valkey, *mechanisms: str) -> None:
    """Versions 1, 2, ... of a metric with the same labels, by these mechanisms; each wants three reports."""
    client = valkey.client()
    for version, mechanism in enumerate(mechanisms, start=1):
        table = {
            "version": version,
            "type": "categorical",
            "description": "Shade",
            "categories": COLORS,
            "epsilon": float(version),
            "mechanism": mechanism,
            "min_reports": 3,
        }
        document = {"schema": 1, "project": "test-app", "metrics": {"shade": table}}
        definition = encode_definition(registry_from_document(document), "shade")
        client.set(storage.metric_key("shade", version), definition)
        client.sadd(storage.versions_key("shade"), version)


def _shades(version: int, n: int) -> bytes:
    """An entry of n reports: by oue in version 1, by grr in version 2."""
    report = b"\x05" if version == 1 else b"\x02\0\0\0"
    return encode_entry([(Cell("shade", version, DAY, ()).name, [report] * n)])


def _combined(valkey: Valkey) -> dict[str, Any]:
    return published_estimates(valkey, "shade", storage.COMBINED)


@pytest.mark.parametrize("survives", range(4))
def test_a_kill_between_two_publishes_is_made_up_for(
    valkey: Valkey, registry: Registry, survives: int
) -> None:
    """Own estimate, combined one, and the same of the other version: wherever the kill falls, all four follow."""
    _announce_shades(valkey, "oue", "grr")
    append_entry(valkey, 0, _shades(1, 3))
    append_entry(valkey, 1, _shades(2, 4))

    class DyingStore(Store):
        left = survives

        def run(self, script: str, *arguments: Any) -> Any:
            if script == "publish":
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1
            return super().run(script, *arguments)

    with pytest.raises(KeyboardInterrupt):
        Worker(DyingStore(valkey.url)).tick()
    done = (
        published_estimates(valkey, "shade", 1),
        _combined(valkey),
        published_estimates(valkey, "shade", 2),
    )
    assert [len(found) for found in done] == [int(survives >= least) for least in (1, 2, 3)]
    new_worker(valkey).tick()
    own = [published_estimates(valkey, "shade", version)[f"{DAY}|*"]["n"] for version in (1, 2)]
    assert (own, _combined(valkey)[f"{DAY}|*"]["n"]) == ([3, 4], 7)
    assert [valkey.client().hgetall(partition_keys(partition).dirty) for partition in (0, 1)] == [{}, {}]


@pytest.mark.parametrize(
    ("reports", "combined"),
    [((3, 0), None), ((0, 9), None), ((3, 2), None), ((2, 9), None), ((3, 3), 6), ((8, 3), 11)],
)
def test_versions_are_combined_where_each_has_enough_reports(
    valkey: Valkey, registry: Registry, reports: tuple[int, int], combined: int | None
) -> None:
    """A combined estimate takes two versions with min_reports each, over all partitions; its n is their sum."""
    _announce_shades(valkey, "oue", "grr")
    for version, n in enumerate(reports, start=1):
        for number in range(n):
            append_entry(valkey, number % PARTITIONS, _shades(version, 1))
    new_worker(valkey).tick()
    documents = _combined(valkey)
    assert [document["n"] for document in documents.values()] == ([combined] if combined else [])
    if combined:
        (document,) = documents.values()
        assert [(part["version"], part["n"]) for part in document["parts"]] == [
            (1, reports[0]),
            (2, reports[1]),
        ]


def test_a_combined_estimate_follows_its_versions(valkey: Valkey, registry: Registry) -> None:
    """It appears when the second version has enough reports, and grows with reports of either."""
    _announce_shades(valkey, "oue", "grr")
    worker = new_worker(valkey)
    for version, n, combined in ((1, 5, []), (2, 2, []), (2, 1, [8]), (1, 4, [12]), (2, 1, [13])):
        append_entry(valkey, version, _shades(version, n))
        worker.tick()
        assert [document["n"] for document in _combined(valkey).values()] == combined


def test_a_version_that_cannot_be_read_is_left_out_and_stops_nothing(
    valkey: Valkey, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged definition of another version costs the combination, never the count."""
    client = valkey.client()
    client.sadd(storage.versions_key("dark_mode"), 1, 7)
    client.set(storage.metric_key("dark_mode", 7), b"{damaged")
    append_entry(valkey, 0, dark_entry(1))
    new_worker(valkey).tick()
    assert published_estimates(valkey, "dark_mode", 1)[f"{DAY}|*"]["n"] == 1
    assert "version 7 of metric 'dark_mode' is not combined" in caplog.text
