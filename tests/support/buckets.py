"""Reports that can be told apart: each has a bucket of its own, so a counter above one proves a double count."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from dither_protocol.mechanisms.forms import encode_base64url
from dither_protocol.registry import parse_registry
from dither_protocol.storage import PartitionKeys, decode_cell, partition_tags
from support.server import batch
from support.store import Store
from support.worker_store import new_worker

BUCKETS = 2_000
_LABELS = ", ".join(f'"b{place}"' for place in range(BUCKETS))


def registry_text(late_days: int = 3) -> str:
    """A project with a metric of `BUCKETS` values, and one of long reports that only take room.

    A change of ``late_days`` does not change the meaning of either.
    """
    return f"""
schema = 1
project = "buckets"

[metrics.bucket]
version = 1
type = "categorical"
description = "A value of one's own"
categories = [{_LABELS}]
epsilon = 1.0
mechanism = "grr"
late_days = {late_days}

[metrics.padding]
version = 1
type = "categorical"
description = "Takes room"
categories = [{_LABELS}]
epsilon = 1.0
mechanism = "oue"
late_days = {late_days}
"""


_METRICS = parse_registry(registry_text()).metrics


def bucket_batch(*places: int, day: date | None = None, padding: int = 0) -> dict[str, Any]:
    """A batch with a report in each of these buckets, about ``day`` (today), and so many of 250 bytes beside them."""
    day = day or datetime.now(UTC).date()
    reports = [_report("bucket", place, day) for place in places]
    reports += [_report("padding", encode_base64url(bytes(BUCKETS // 8)), day)] * padding
    return batch(*reports, until=day + timedelta(days=6))


def _report(metric: str, data: object, day: date) -> dict[str, Any]:
    params = _METRICS[metric].params_hash
    about = {"metric": metric, "version": 1, "params": params, "window": day.isoformat(), "dimensions": {}}
    return about | {"data": data}


def counted(store: Store, partitions: int = 8) -> dict[int, int]:
    """Let a worker count all there is; afterwards the number of reports by bucket, without empty buckets."""
    worker = new_worker(store)
    with store.client() as client:
        keys = [PartitionKeys(tag) for tag in partition_tags(partitions)]
        while any(client.xlen(key.stream) for key in keys):
            worker.count()
        totals: dict[int, int] = {}
        for name in client.keys("dither:{*}:cell:bucket:*"):
            n, counters = decode_cell(client.get(name))
            assert sum(counters) == n
            for place, number in enumerate(counters):
                if number:
                    totals[place] = totals.get(place, 0) + number
        return totals
