"""The index of accounts as the store filters it: nothing that the view asks for is left out."""

from contextlib import nullcontext
from datetime import timedelta

from dither_protocol.storage import PartitionKeys, partition_tags
from dither_protocol.windows import window_at
from dither_server.catalogue import Catalogue
from dither_server.conservation import View
from dither_server.measuring import measure
from support.server import NOW, registry
from support.store import Store

KEYS = PartitionKeys(partition_tags(1)[0])
_ODD = ("once", "_unknown", "", "2126-11-29T12:00", "no label")


def test_the_usual_view_is_read_to_its_last_window(store: Store) -> None:
    """Windows of every period, more of them than one page of the index, and names that no server makes."""
    view = View.from_query({}, Catalogue(registry()), NOW)
    labels = {
        window_at(period, NOW - timedelta(hours=hours)).label
        for period in ("hour", "day", "week", "month")
        for hours in range(-48, 24 * 60)
    }
    buckets = [(metric, label) for metric in ("dark_mode", "toolbar", "left") for label in (*labels, *_ODD)]
    taken = {bucket for bucket in buckets if view.takes(bucket)}
    assert 500 < len(taken) < len(buckets) - 500
    with store.client() as redis:
        redis.sadd(KEYS.outcomes, *(f"{metric}:{label}" for metric, label in buckets))
        found = measure(redis, [KEYS], view, 60.0, lambda keys: nullcontext())
    assert found.accounts.keys() == taken
    assert (found.unsettled, found.unreadable) == ([], [])
