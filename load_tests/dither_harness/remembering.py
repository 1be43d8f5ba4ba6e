"""Ids of batches of the last hours, put into a store: it is as large then as one that has worked for so long.

What the server remembers about a batch is its id, until its date is over. A store that was just created grows with each
batch; one that has worked for some days forgets as many of them as come, so fifteen minutes are little beside it.
"""

import os
from collections import defaultdict
from datetime import UTC, datetime
from typing import Final

from dither_estimator.store import Store
from dither_protocol.storage import PartitionKeys, partition_of, partition_tags
from dither_protocol.wire import BATCH_ID_BYTES

_AT_ONCE: Final = 8_000
_KEPT_S: Final = 3 * 86_400


def remember(store: Store, ids: int) -> None:
    """Let a store remember so many random ids until today, beside whatever it remembers.

    Their sets are not those that new batches go to, whose date is a later one where metrics have late days.

    Raises:
        StoreUnavailableError: it does not answer.
    """
    until = datetime.now(UTC).date().isoformat()
    keys = [PartitionKeys(tag).seen(until) for tag in partition_tags(store.open() or 0)]
    for begin in range(0, ids, _AT_ONCE):
        parts: dict[str, list[bytes]] = defaultdict(list)
        for batch_id in _fresh(min(_AT_ONCE, ids - begin)):
            parts[keys[partition_of(batch_id, len(keys))]].append(batch_id)
        store.commands([("SADD", key, *found) for key, found in parts.items()])
    store.commands([("EXPIRE", key, _KEPT_S) for key in keys])


def _fresh(count: int) -> list[bytes]:
    drawn = os.urandom(BATCH_ID_BYTES * count)
    return [drawn[at : at + BATCH_ID_BYTES] for at in range(0, len(drawn), BATCH_ID_BYTES)]
