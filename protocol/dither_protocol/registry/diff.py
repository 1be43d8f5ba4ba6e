"""What has changed between two registries, and whether devices, reports and promises survive it. Pure.

Each difference has a verdict:

- ``breaking``: reports would be mixed or refused, or a question would stop being the one that its name stands for.
  There is a right move that loses nothing, and it is said.
- ``notice``: allowed, but a promise to the people at the devices becomes weaker, or a series of estimates is cut.
  Somebody should have meant it.
- ``compatible``: nothing to look at.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Final

from dither_protocol.registry.difference import Difference, Verdict
from dither_protocol.registry.metric import Metric
from dither_protocol.registry.metric_diff import metric_differences
from dither_protocol.registry.model import Registry

_LOOK_AT_N: Final = "see `dither plan --registry` for what that does to the intervals"
_LIMITS: Final = {
    "max_epsilon_per_day": "on one day",
    "max_epsilon_lifetime": "in its life",
}


def diff_registries(old: Registry, new: Registry, now: datetime) -> list[Difference]:
    """Every difference, those of the registry as a whole first, then by metric in the order of the two files.

    Args:
        old: what devices and server have.
        new: what they shall have.
        now: an aware datetime; it decides whether windows of an expired metric still take reports.
    """
    found = [*_whole(old, new), *_privacy(old, new)]
    for name, metric in old.metrics.items():
        if name in new.metrics:
            tables = (old.document["metrics"][name], new.document["metrics"][name])
            found += metric_differences(metric, new.metrics[name], tables, now.astimezone(UTC).date())
        else:
            found.append(_removed(metric, old, new, now))
    found += [_added(metric, old, new) for name, metric in new.metrics.items() if name not in old.metrics]
    return found


def verdict_of(differences: Iterable[Difference], *, strict: bool = False) -> Verdict:
    """The gravest verdict of all; with ``strict`` a notice is as grave as a breaking change."""
    verdicts = {difference.verdict for difference in differences}
    if Verdict.BREAKING in verdicts or (strict and Verdict.NOTICE in verdicts):
        return Verdict.BREAKING
    return Verdict.NOTICE if Verdict.NOTICE in verdicts else Verdict.COMPATIBLE


def last_close(metric: Metric) -> datetime | None:
    """The first instant at which no window of a metric takes reports any more; None where it does not expire."""
    if metric.expires is None:
        return None
    last_instant = datetime.combine(metric.expires, time(23, 59, 59), UTC)
    return metric.closes_at(metric.window_at(last_instant))


def _whole(old: Registry, new: Registry) -> Iterator[Difference]:
    if old.project != new.project:
        yield Difference(
            "", "project", Verdict.BREAKING, f"renamed from '{old.project}' to '{new.project}': devices refuse it",
            f"keep '{old.project}'; another project begins with a registry, keys and a store of its own",
        )  # fmt: skip
    was, now = old.document["schema"], new.document["schema"]
    if now < was:
        yield Difference(
            "", "schema", Verdict.BREAKING, f"lowered from {was} to {now}: what the newer one means is lost",
            f"keep schema {was}",
        )  # fmt: skip
    elif now > was:
        yield Difference(
            "", "schema", Verdict.NOTICE, f"raised from {was} to {now}: devices with an older SDK refuse it",
            "ship the SDK that reads it first",
        )  # fmt: skip


def _privacy(old: Registry, new: Registry) -> Iterator[Difference]:
    for key, span in _LIMITS.items():
        was, now = getattr(old.privacy, key), getattr(new.privacy, key)
        if was != now:
            yield _limit(f"privacy.{key}", was, now, span)
    was, now = old.privacy.delta, new.privacy.delta
    if was != now:
        yield _delta(was, now)
    if old.privacy.expected_devices != new.privacy.expected_devices:
        reason = "a number for `dither registry check`; devices do nothing with it"
        yield Difference("", "privacy.expected_devices", Verdict.COMPATIBLE, reason)


def _limit(key: str, was: float | None, now: float | None, span: str) -> Difference:
    if now is None or (was is not None and now > was):
        what = f"removed; it was {was:g}" if now is None else f"raised from {was:g} to {now:g}"
        return Difference(
            "", key, Verdict.NOTICE, f"{what}: a device may spend more {span} than people were told",
            "tell them in the privacy statement, or leave it; limits that the app sets in its own code still hold",
        )  # fmt: skip
    what = f"set to {now:g}" if was is None else f"lowered from {was:g} to {now:g}"
    return Difference("", key, Verdict.COMPATIBLE, f"{what}: devices above it answer nothing more")


def _delta(was: float | None, now: float | None) -> Difference:
    key = "privacy.delta"
    if now is not None and (was is None or now > was):
        what = f"set to {now:g}" if was is None else f"raised from {was:g} to {now:g}"
        return Difference(
            "", key, Verdict.NOTICE, f"{what}: the limit for life holds but for this probability, and allows more",
            "tell people in the privacy statement, or leave it",
        )  # fmt: skip
    what = f"removed; it was {was:g}" if now is None else f"lowered from {was:g} to {now:g}"
    return Difference("", key, Verdict.COMPATIBLE, f"{what}: the limit for life is stricter")


def _added(metric: Metric, old: Registry, new: Registry) -> Difference:
    was, now = old.worst_case_per_day(), new.worst_case_per_day()
    reason = (
        f"added: epsilon {metric.epsilon:g} a report; over all metrics a device spends at most {now:g} on one day, "
        f"and {was:g} before"
    )
    if any(name in old.metrics for name in _group_names(metric, new)):
        reason += f"; of the group '{metric.one_of}' a device answers one per window, so its other metrics get fewer"
        return Difference(metric.name, "metrics", Verdict.NOTICE, reason, _LOOK_AT_N)
    limit = new.privacy.max_epsilon_per_day
    if limit is not None and now > limit:
        reason += (
            f"; that is above the limit of {limit:g}, at which it stops, so other metrics get fewer answers"
        )
        return Difference(
            metric.name, "metrics", Verdict.NOTICE, reason, "`dither registry check` refuses that"
        )
    return Difference(metric.name, "metrics", Verdict.COMPATIBLE, reason)


def _group_names(metric: Metric, registry: Registry) -> list[str]:
    """All metrics of the group of this one; none where it has no group."""
    return [] if metric.one_of is None else [member.name for member in registry.groups[metric.one_of]]


def _removed(metric: Metric, old: Registry, new: Registry, now: datetime) -> Difference:
    """Whether a metric may go: once its last window is closed, since without it all its reports are refused."""
    closed = last_close(metric)
    if closed is not None and closed <= now:
        reason = f"removed: its last window closed on {closed.date()}"
        return Difference(metric.name, "metrics", Verdict.COMPATIBLE, reason)
    table = old.document["metrics"][metric.name]
    for name, other in new.document["metrics"].items():
        if name not in old.metrics and dict(other) == dict(table):
            return Difference(
                metric.name, "metrics", Verdict.BREAKING,
                f"renamed to '{name}': to devices and server that is another question",
                f"keep the name '{metric.name}'; `description` is for people and may change",
            )  # fmt: skip
    reason = "removed while devices still answer it: reports on their way would be refused"
    if closed is None:
        move = "let it expire: set `expires`, and take it out when its last window has closed"
    else:
        first_day = (closed + timedelta(days=1) - timedelta(microseconds=1)).date()
        move = f"let it expire: leave it until {first_day}, when its last window has closed"
    return Difference(metric.name, "metrics", Verdict.BREAKING, reason, move)
