"""Keys and arguments of ``scripts/admit.lua``, and its answer. Pure; the script's head says what each one means."""

from datetime import UTC, date, datetime, time, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Final

from dither_protocol.storage import PartitionKeys
from dither_server.admission import RECEIVED, Admission

SEEN_MARGIN: Final = timedelta(days=2)
"""Ids outlive the last day of their batch, so that no two clocks can disagree about forgetting one."""


class Outcome(IntEnum):
    """What the script did with a batch."""

    NEW = 1
    DUPLICATE = 0
    FULL = -1


def admit_call(
    keys: PartitionKeys, admission: Admission, high_water_bytes: int
) -> tuple[list[str], list[bytes | int | str]]:
    """The script's KEYS and ARGV for one batch.

    Args:
        keys: of the partition that the batch lives in.
        admission: the verdict on the batch.
        high_water_bytes: backlog from which the partition takes no more.
    """
    names = [keys.seen(admission.until.isoformat()), keys.stream, keys.backlog, keys.outcomes]
    arguments: list[bytes | int | str] = [
        admission.batch_id,
        admission.entry,
        high_water_bytes,
        forget_at(admission.until),
    ]
    for (metric, window), counts in admission.outcomes.items():
        names += (keys.outcome(metric, window), keys.ever(metric))
        arguments += (counts[RECEIVED], len(counts) - 1)
        for word, number in counts.items():
            if word != RECEIVED:
                arguments += (word, number)
    if admission.refused:
        names.append(keys.refused)
    for (metric, version, reason), number in admission.refused.items():
        arguments += (f"{metric}:{version}:{reason}", number)
    return names, arguments


@lru_cache(maxsize=64)
def forget_at(until: date) -> int:
    """Unix time, seconds, at which the ids of batches with this last day may be forgotten."""
    end = datetime.combine(until, time.min, UTC) + timedelta(days=1)
    return int((end + SEEN_MARGIN).timestamp())
