"""Whether what was measured now is worse than what is committed. Pure: no clock, no file, no machine.

Figures of two machines are compared by their ratio to a yardstick of the same run (`Row.relative`), never as they are.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

LIMIT: Final = 0.25
"""A row may be worse by this share of the committed ratio, and not by more."""

TRIES: Final = 3
"""How often a row is measured that seems to be worse; noise passes, a loss stays."""


class Verdict(StrEnum):
    """What became of a row."""

    HELD = "held"
    WORSE = "worse"
    MISSING = "missing"  # committed and guarded, and nobody measures it any more
    OTHER_YARDSTICK = "other yardstick"
    SKIPPED = "skipped"
    NEW = "new"


FAILING: Final = frozenset({Verdict.WORSE, Verdict.MISSING, Verdict.OTHER_YARDSTICK})


@dataclass(frozen=True)
class Figure:
    """A guarded row as far as it is compared; see `harness.Row`."""

    name: str
    suite: str
    relative: float
    higher_is_better: bool
    yardstick: str
    condition: str = ""

    def better(self, other: "Figure") -> bool:
        """Whether this one is better than the other."""
        if self.higher_is_better:
            return self.relative > other.relative
        return self.relative < other.relative


@dataclass(frozen=True)
class Finding:
    """One row of the check.

    Attributes:
        name: the row's.
        verdict: see `Verdict`.
        committed: its ratio as committed; None for a new row.
        measured: its ratio now; None where it was not measured.
        worse_by: by which share of the committed ratio it is worse; negative where it is better.
        reason: why it could not be compared.
    """

    name: str
    verdict: Verdict
    committed: float | None = None
    measured: float | None = None
    worse_by: float | None = None
    reason: str = ""


def figures(rows: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """The guarded rows of a results.json, by name.

    Raises:
        ValueError: one of them is no finite number.
    """
    found = {}
    for row in rows:
        if not row.get("guarded") or row.get("relative") is None:
            continue
        if not math.isfinite(row["relative"]):
            raise ValueError(f"{row['name']}: {row['relative']} is no figure")
        fields = ("name", "suite", "relative", "higher_is_better", "yardstick", "condition")
        found[row["name"]] = Figure(**{field: row[field] for field in fields})
    return found


def worse_by(committed: Figure, measured: Figure) -> float:
    """By which share of the committed ratio the measured one is worse; negative where it is better.

    What was nothing has no share: anything worse is then worse without limit.
    """
    if committed.higher_is_better:
        lost = committed.relative - measured.relative
    else:
        lost = measured.relative - committed.relative
    if committed.relative == 0:
        return math.inf if lost > 0 else 0.0
    return lost / abs(committed.relative)


def settle(
    measure: Callable[[], Mapping[str, Figure]], committed: Mapping[str, Figure], tries: int = TRIES
) -> dict[str, Figure]:
    """Measure rows; while one of them seems to be worse, measure again. Gives the best of each.

    Args:
        measure: measures some rows, always the same.
        committed: what they are compared with.
        tries: how often, at most.
    """
    best: dict[str, Figure] = {}
    for _ in range(tries):
        for name, figure in measure().items():
            if name not in best or figure.better(best[name]):
                best[name] = figure
        if not any(_is_worse(committed[name], best[name]) for name in best if name in committed):
            break
    return best


def compare(
    committed: Mapping[str, Figure], measured: Mapping[str, Figure], skipped: Mapping[str, str]
) -> list[Finding]:
    """What became of each committed row, in its order, and then of each new one.

    Args:
        committed: the guarded rows of the committed results.
        measured: the same of this run.
        skipped: suites that this machine cannot measure, each with the reason.
    """
    found = [_judged(figure, measured.get(name), skipped) for name, figure in committed.items()]
    new = [figure for name, figure in measured.items() if name not in committed]
    return found + [Finding(figure.name, Verdict.NEW, measured=figure.relative) for figure in new]


def _judged(committed: Figure, measured: Figure | None, skipped: Mapping[str, str]) -> Finding:
    name, before = committed.name, committed.relative
    if measured is None:
        if committed.suite in skipped:
            return Finding(name, Verdict.SKIPPED, before, reason=skipped[committed.suite])
        return Finding(name, Verdict.MISSING, before, reason="no longer measured")
    now = measured.relative
    if committed.condition != measured.condition:
        reason = (
            f"committed with {committed.condition or 'no condition'}, here {measured.condition or 'none'}"
        )
        return Finding(name, Verdict.SKIPPED, before, now, reason=reason)
    if not _comparable(committed, measured):
        reason = f"committed over {committed.yardstick}, here over {measured.yardstick}"
        return Finding(name, Verdict.OTHER_YARDSTICK, before, now, reason=reason)
    share = worse_by(committed, measured)
    return Finding(name, Verdict.WORSE if share > LIMIT else Verdict.HELD, before, now, share)


def _comparable(committed: Figure, measured: Figure) -> bool:
    """Whether both are over the same yardstick, and better in the same direction."""
    return (committed.yardstick, committed.higher_is_better) == (
        measured.yardstick,
        measured.higher_is_better,
    )


def _is_worse(committed: Figure, measured: Figure) -> bool:
    return (
        committed.condition == measured.condition
        and _comparable(committed, measured)
        and worse_by(committed, measured) > LIMIT
    )
