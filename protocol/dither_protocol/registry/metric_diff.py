"""What has changed in one metric that two registries have, and how grave that is. Pure; see `diff`.

Whatever is part of ``params_hash`` needs a new version: reports of both kinds would be counted together. A new version
costs something too: a device that has answered in the running window answers again, and pays again.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, Final

from dither_protocol.registry.difference import Difference, Verdict
from dither_protocol.registry.metric import MEMOIZED, Metric
from dither_protocol.registry.spending import permanent_answers
from dither_protocol.windows import ONCE, PERIODS

_SHOWN: Final = 3
_SPENDING: Final = ("epsilon_permanent", "max_distinct_values")
"""Keys beside ``epsilon`` of which more is more spent."""
_JUDGED: Final = frozenset(
    {
        "version", "type", "description", "owner", "expires", "categories", "epsilon", "mechanism", "period",
        "collection", "dimensions", "min_reports", "late_days", "retention_days", "use_case", "one_of",
        "calibration",
    }
)  # fmt: skip
"""Keys with a rule of their own below; any other is judged by whether ``params_hash`` changes with it."""

_ASIDE: Final = "; estimates of the two versions stand side by side and are not combined"


def metric_differences(
    old: Metric, new: Metric, tables: tuple[Mapping[str, Any], Mapping[str, Any]], today: date
) -> list[Difference]:
    """Every difference between two definitions of one name.

    Args:
        old: as devices know it.
        new: as they shall know it.
        tables: the two tables of the registry's document that they were read from.
        today: the UTC date.
    """
    if old.type != new.type:
        return [
            Difference(
                old.name, "type", Verdict.BREAKING,
                f"the name was of a {old.type} and is used again for a {new.type}: one name is one question",
                "choose another name for the new question, and let this metric expire",
            )
        ]  # fmt: skip
    if old.calibration != new.calibration:
        return [
            Difference(
                old.name, "calibration", Verdict.BREAKING,
                "the true answers of a name are others: versions of one metric are combined, and a truth would be "
                "held against estimates of another",
                "choose another name, and let this metric expire",
            )
        ]  # fmt: skip
    judge = _Judge(old, new, tables, today)
    meaning, rest = list(judge.meaning()), list(judge.rest())
    return [*judge.version(meaning), *meaning, *rest]


class _Judge:
    def __init__(
        self, old: Metric, new: Metric, tables: tuple[Mapping[str, Any], Mapping[str, Any]], today: date
    ) -> None:
        self._old, self._new, self._tables, self._today = old, new, tables, today
        self._renewed = new.version > old.version
        self._raise = f"raise version to {old.version + 1}"
        self._same_params = old.params_hash == new.params_hash

    def version(self, meaning: list[Difference]) -> Iterator[Difference]:
        """The version itself."""
        was, now = self._old.version, self._new.version
        if now < was:
            reason = (
                f"lowered from {was} to {now}: devices keep the newer one, and {now} meant something else"
            )
            yield self._difference("version", Verdict.BREAKING, reason, self._raise)
        if now <= was:
            return
        reason = (
            f"raised from {was} to {now}: a device that has answered in the running window answers once more"
        )
        if self._new.period == ONCE:
            reason = f"raised from {was} to {now}: every device is asked again, and pays again"
            yield self._difference(
                "version", Verdict.NOTICE, reason, f"keep version {was} unless that is meant"
            )
        elif self._old.collection == self._new.collection == MEMOIZED:
            costs = sum(epsilon * values for epsilon, values in permanent_answers(self._new))
            reason = (
                f"raised from {was} to {now}: permanent answers are drawn anew, and every device pays epsilon "
                f"{costs:g} for life again"
            )
            yield self._difference(
                "version", Verdict.NOTICE, reason, f"keep version {was} unless that is meant"
            )
        elif not meaning and self._new.late_days >= self._old.late_days:
            move = f"keep version {was}: nothing that gives reports their meaning has changed"
            yield self._difference("version", Verdict.NOTICE, reason, move)
        else:
            yield self._difference("version", Verdict.COMPATIBLE, reason)

    def meaning(self) -> Iterator[Difference]:
        """What gives reports their meaning: never without a new version."""
        old, new = self._old, self._new
        if old.labels != new.labels:
            yield self._labels()
        if old.epsilon != new.epsilon:
            yield self._epsilon()
        if old.mechanism.name != new.mechanism.name:
            reason = f"changed from {old.mechanism.name} to {new.mechanism.name}"
            yield self._meant("mechanism", f"{reason}: the noise has other probabilities")
        if old.period != new.period:
            reason = f"changed from {old.period} to {new.period}: the windows are others"
            if PERIODS.index(new.period) < PERIODS.index(old.period):
                reason += ", and a device answers more often, and spends more"
            yield self._meant("period", reason + _ASIDE * self._renewed, notice=True)
        if old.collection != new.collection:
            reason = (
                f"changed from {old.collection} to {new.collection}: the privacy guarantee is another one"
            )
            yield self._meant("collection", reason, notice=True)
        if _sets(old.dimensions) != _sets(new.dimensions):
            yield self._dimensions()
        yield from self._other_keys()

    def rest(self) -> Iterator[Difference]:
        """What may change in place."""
        for key in ("description", "owner", "use_case"):
            if getattr(self._old, key) != getattr(self._new, key):
                reason = "for people; if the question itself is another one now, " + self._raise
                yield self._difference(
                    key, Verdict.COMPATIBLE, reason if key == "description" else "for people"
                )
        yield from self._one_of()
        yield from self._expires()
        yield from self._min_reports()
        yield from self._late_days()
        yield from self._retention()

    def _difference(self, key: str, verdict: Verdict, reason: str, move: str = "") -> Difference:
        return Difference(self._new.name, key, verdict, reason, move)

    def _meant(self, key: str, reason: str, *, move: str = "", notice: bool = False) -> Difference:
        """A change of meaning: breaking without a new version; in one a notice where ``notice``."""
        if not self._renewed:
            return self._difference(
                key,
                Verdict.BREAKING,
                f"{reason}; under one version reports would be mixed",
                move or self._raise,
            )
        return self._difference(key, Verdict.NOTICE if notice else Verdict.COMPATIBLE, reason)

    def _labels(self) -> Difference:
        old, new = self._old.labels, self._new.labels
        if new[: len(old)] == old:
            reason = f"appended {_names(new[len(old) :])}{_ASIDE}"
            return self._meant("categories", reason, move=f"{self._raise}; the order is right as it is")
        gone = [label for label in old if label not in set(new)]
        fresh = [label for label in new if label not in set(old)]
        parts = [f"removed {_names(gone)}"] * bool(gone) + [f"added {_names(fresh)}"] * bool(fresh)
        reason = " and ".join(parts) or "the labels stand in another order"
        move = f"keep the label order and append in a new version ({self._raise})"
        return self._meant(
            "categories", f"{reason}: an index means another label{_ASIDE}", move=move, notice=True
        )

    def _epsilon(self) -> Difference:
        was, now = self._old.epsilon, self._new.epsilon
        if now > was:
            reason = f"raised from {was:.12g} to {now:.12g}: answers are protected less than people were told"
            return self._meant("epsilon", reason, notice=True)
        return self._meant("epsilon", f"lowered from {was:.12g} to {now:.12g}: answers are protected more")

    def _dimensions(self) -> Difference:
        old, new = self._old.dimensions, self._new.dimensions
        changed = sorted(
            name for name in old.keys() | new.keys() if set(old.get(name, ())) != set(new.get(name, ()))
        )
        was, now = _combinations(old), _combinations(new)
        reason = f"{', '.join(changed)} changed: {now} cells a window, and {was} before"
        if now > was:
            reason += ": a device may report once for each, and spends more"
        told = [name for name in changed if not set(new.get(name, ())) <= set(old.get(name, ()))]
        if told:
            reason += f"; {', '.join(told)} leaves in the clear with values that people were not told of"
        return self._meant("dimensions", reason, notice=now > was or bool(told))

    def _other_keys(self) -> Iterator[Difference]:
        """Keys that this module has no rule for."""
        old, new = self._tables
        for key in sorted((old.keys() | new.keys()) - _JUDGED):
            was, now = old.get(key), new.get(key)
            if was == now:
                continue
            reason = f"changed from {was} to {now}"
            if self._renewed or not self._same_params:
                grows = key in _SPENDING and isinstance(now, int | float) and (was is None or now > was)
                yield self._meant(key, reason + ": a device may spend more" * grows, notice=grows)
            else:
                move = "see what this key does to devices that have the old one"
                yield self._difference(key, Verdict.NOTICE, f"{reason}; no report changes its meaning", move)

    def _one_of(self) -> Iterator[Difference]:
        was, now = self._old.one_of, self._new.one_of
        if was == now:
            return
        what = f"set to '{now}'" if was is None else f"removed; it was '{was}'"
        if was is not None and now is not None:
            what = f"changed from '{was}' to '{now}'"
        consequence = (
            "every device answers again, and is charged for each metric by itself"
            if now is None
            else "of the metrics of a group a device answers one per window"
        )
        reason = f"{what}: {consequence}, so n changes; no report changes its meaning"
        move = "see `dither plan --registry` for what that does to the intervals"
        yield self._difference("one_of", Verdict.NOTICE, reason, move)

    def _expires(self) -> Iterator[Difference]:
        was, now = self._old.expires, self._new.expires
        if was == now:
            return
        if now is None:
            reason, move = f"removed; it was {was}: devices are asked without end", "set a later day instead"
            yield self._difference("expires", Verdict.NOTICE, reason, move)
        elif was is not None and now > was:
            reason = f"moved from {was} to {now}: devices are asked for longer than people were told"
            yield self._difference("expires", Verdict.NOTICE, reason, "say so where you told them")
        elif now < self._today and self._renewed:
            reason = f"moved to {now}, which is over: no device answers version {self._new.version}"
            yield self._difference("expires", Verdict.NOTICE, reason, f"set it to {self._today} or later")
        elif now < self._today:
            reason = f"moved to {now}, which is over: reports about later windows, on their way now, would be refused"
            over = was is not None and was < self._today
            move = f"keep {was}" if over else f"set it to {self._today} or later"
            yield self._difference("expires", Verdict.BREAKING, reason, move)
        else:
            reason = f"set to {now}" if was is None else f"moved from {was} to {now}"
            yield self._difference(
                "expires", Verdict.COMPATIBLE, f"{reason}: devices are asked for a shorter time"
            )

    def _min_reports(self) -> Iterator[Difference]:
        was, now = self._old.min_reports, self._new.min_reports
        if now < was:
            reason = f"lowered from {was} to {now}: estimates of smaller groups are published"
            yield self._difference("min_reports", Verdict.NOTICE, reason, f"keep {was} unless that is meant")
        elif now > was:
            reason = f"raised from {was} to {now}: cells with fewer reports are suppressed"
            yield self._difference("min_reports", Verdict.COMPATIBLE, reason)

    def _late_days(self) -> Iterator[Difference]:
        was, now = self._old.late_days, self._new.late_days
        if now > was and not self._renewed:
            reason = f"raised from {was} to {now}: windows that were final take reports again"
            move = f"{self._raise}, so that what was final stays so"
            yield self._difference("late_days", Verdict.NOTICE, reason, move)
        elif now < was and not self._renewed:
            # Breaking: the privacy of these answers is spent, and there is a move by which none of them is lost.
            reason = f"lowered from {was} to {now}: reports on their way, made in time, would be refused"
            move = f"{self._raise}: the windows of version {self._old.version} keep their {was} days"
            yield self._difference("late_days", Verdict.BREAKING, reason, move)
        elif now != was:
            reason = f"changed from {was} to {now}; windows of version {self._old.version} keep theirs"
            yield self._difference("late_days", Verdict.COMPATIBLE, reason)

    def _retention(self) -> Iterator[Difference]:
        was, now = self._old.retention_days, self._new.retention_days
        if was == now:
            return
        if now is not None and (was is None or now < was):
            reason = f"shortened to {now}: what is older is forgotten at the next pruning, for good"
            move = "take what you need of it first"
        else:
            reason = f"it was {was}, and is {'without end' if now is None else now}: kept longer than people were told"
            move = "say so where you told them"
        yield self._difference("retention_days", Verdict.NOTICE, reason, move)


def _sets(dimensions: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Dimensions without the order of their values, which has no meaning."""
    return {name: frozenset(values) for name, values in dimensions.items()}


def _combinations(dimensions: Mapping[str, tuple[str, ...]]) -> int:
    return math.prod(len(values) for values in dimensions.values())


def _names(labels: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(f"'{label}'" for label in labels[:_SHOWN])
    return shown + (f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else "")
