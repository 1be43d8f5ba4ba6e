"""What was published last about each metric, in two round trips for all of them.

``client`` is the redis-py client that `dither_server.store` opened: that module alone may import its package.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dither_protocol.storage import (
    COMBINED,
    estimate_field,
    estimates_key,
    parse_published_member,
    published_key,
)
from dither_server.documents import Estimate, read_estimates

_MEMBERS: Final = 32
"""Versions of one window that are looked at, the estimate over several of them included; or so many windows."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The estimates over all dimensions about a metric's last window that has any.

    Attributes:
        estimate: the one over several versions where there is one, else the newest version's, as pages show it.
        n: reports of all its versions.
        watermark: time before which every report was counted when one of them changed last.
        recent: estimates of single versions about the last windows, latest first, where they were asked for.
    """

    estimate: Estimate
    n: int
    watermark: datetime | None
    recent: Sequence[Estimate] = ()


def read_latest(
    client: Any, names: Sequence[str], recent: Collection[str] = frozenset()
) -> Mapping[str, Latest]:
    """By metric; without those about which nothing is published. Raises whatever the client does.

    Args:
        client: of the store.
        names: of the metrics.
        recent: those of them of which earlier windows are read, too.
    """
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.zrevrange(published_key(name), 0, _MEMBERS - 1, withscores=True)
        places = [
            (name, start == members[0][1], *parse_published_member(member.decode()))
            for name, members in zip(names, pipe.execute(), strict=True)
            for member, start in members
            if start == members[0][1] or name in recent
        ]
    field = estimate_field(None)
    with client.pipeline(transaction=False) as pipe:
        for name, _, version, window in places:
            pipe.hget(estimates_key(name, version, window), field)
        documents = pipe.execute() if places else []
    found: dict[str, dict[str, Estimate]] = {}
    earlier: dict[str, list[Estimate]] = {}
    for (name, is_last, version, _), document in zip(places, documents, strict=True):
        estimates, _ = read_estimates([] if document is None else [document])  # None: forgotten a moment ago
        for estimate in estimates:
            if is_last:
                found.setdefault(name, {})[version] = estimate
            if name in recent and version != COMBINED:
                earlier.setdefault(name, []).append(estimate)
    return {name: _latest(versions, earlier.get(name, ())) for name, versions in found.items()}


def _latest(versions: Mapping[str, Estimate], recent: Sequence[Estimate]) -> Latest:
    single = {int(version): estimate for version, estimate in versions.items() if version != COMBINED}
    over_several = versions.get(COMBINED)
    shown = over_several or single[max(single)]
    marks = [estimate.watermark for estimate in versions.values() if estimate.watermark is not None]
    return Latest(
        estimate=shown,
        n=sum(estimate.n for estimate in single.values()) or shown.n,
        watermark=max(marks, default=None),
        recent=recent,
    )
