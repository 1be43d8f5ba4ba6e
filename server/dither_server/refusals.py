"""Which versions the refused reports are of: numbers since the store was created, beside the ledger.

The admit script counts them together with the accounts, so that they are exact. They are no term of the ledger: a
report about a window that is not acceptable counts as ``_unknown`` there, and under its own metric and version here.
``client`` is the redis-py client that `dither_server.store` opened: that module alone may import its package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dither_protocol.errors import Rejection
from dither_protocol.storage import PartitionKeys
from dither_server.series import OTHER

_REASONS: Final = frozenset(Rejection)


@dataclass(frozen=True, slots=True)
class RefusedReports:
    """Reports of one version that were refused for one reason, which is `OTHER` where a later server knows it."""

    metric: str
    version: int
    reason: str
    reports: int


def read_refused(client: Any, partitions: Sequence[PartitionKeys]) -> list[RefusedReports] | None:
    """Read them, in one round trip; those of which there are most first.

    Returns:
        None where a partition's numbers cannot be read: a sum without a part would fall.
    """
    with client.pipeline(transaction=False) as pipe:
        for keys in partitions:
            pipe.hgetall(keys.refused)
        hashes = pipe.execute(raise_on_error=False)
    totals: dict[tuple[str, int, str], int] = {}
    for found in hashes:
        read = _numbers(found)
        if read is None:
            return None
        for key, reports in read.items():
            totals[key] = totals.get(key, 0) + reports
    rows = [RefusedReports(*key, reports) for key, reports in totals.items()]
    return sorted(rows, key=lambda row: (-row.reports, row.metric, row.version, row.reason))


def _numbers(found: Any) -> Mapping[tuple[str, int, str], int] | None:
    """One partition's; None where they are an error, or what no party of this version wrote."""
    if isinstance(found, Exception):
        return None
    try:
        numbers: dict[tuple[str, int, str], int] = {}
        for name, reports in found.items():
            metric, version, reason = name.decode("ascii").split(":")
            key = metric, int(version), reason if reason in _REASONS else OTHER
            numbers[key] = numbers.get(key, 0) + int(reports)
    except ValueError:
        return None
    return numbers
