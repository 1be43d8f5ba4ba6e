"""What ever became of the reports of each metric: sums that only grow, whatever is forgotten.

The admit and apply scripts keep them beside the accounts, so that they are exact without any process that counts:
every process reads the same, and none has to live long. ``client`` is the redis-py client that `dither_server.store`
opened: that module alone may import its package.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dither_protocol.errors import StorageError
from dither_protocol.storage import METRICS_KEY, UNKNOWN, PartitionKeys
from dither_server.conservation import Terms, read_account
from dither_server.moments import Damaged, sound

_HASHES_AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class Ever:
    """The sums over all partitions.

    Attributes:
        terms: by metric: of all that were ever announced, and of what could be assigned to none. Nothing is in flight
            here, and nothing out of balance: the sums of several partitions are not of one moment.
        damaged: keys that cannot be read. Their metrics are not in ``terms``, since a sum without a part would fall.
    """

    terms: dict[str, Terms] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def read_ever(client: Any, partitions: Sequence[PartitionKeys]) -> Ever:
    """Read them, in two round trips for each thousand.

    Raises whatever the client does: all or nothing, since a sum without a partition would fall.
    """
    names = [*sorted(name.decode() for name in client.smembers(METRICS_KEY)), UNKNOWN]
    found = Ever({name: Terms() for name in names})
    all_places = [(name, keys.ever(name)) for name in names for keys in partitions]
    for start in range(0, len(all_places), _HASHES_AT_ONCE):
        places = all_places[start : start + _HASHES_AT_ONCE]
        with client.pipeline(transaction=False) as pipe:
            for _, key in places:
                pipe.hgetall(key)
            answers = pipe.execute(raise_on_error=False)
        for (name, key), fields in zip(places, answers, strict=True):
            try:
                terms = read_account(sound(key, fields), 0)
            except (Damaged, StorageError):
                found.damaged.append(key)
                found.terms.pop(name, None)
                continue
            if name in found.terms:
                terms.imbalance = 0
                found.terms[name].add(terms)
    return found
