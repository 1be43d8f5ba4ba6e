"""The verdict over the reports of one mechanism: what epsilon they prove, and whether they follow their law. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dither_estimator.audit_events import cells, place_cells, supporters
from dither_estimator.audit_games import Game, learnt_game, smallest_violation, support_game
from dither_estimator.audit_laws import Deviation, deviations
from dither_protocol import Mechanism

ORDER: Final = "order of the list"
"""Name of the game that looks at where values stand in a report that came as a list."""


@dataclass(frozen=True)
class Sample:
    """Reports of one mechanism about two values, in the order they were made.

    Attributes:
        mechanism: the declared one.
        pair: the two values.
        packed: the reports, ``mechanism.packed_size`` bytes each.
        is_first: whether the device held the first of the two, drawn by a fair coin for each report.
        lists: the reports as lists of values in the order they came in; empty where a report has no order.
    """

    mechanism: Mechanism
    pair: tuple[int, int]
    packed: bytes
    is_first: NDArray[np.bool_]
    lists: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Verdict:
    """What the reports of one mechanism show.

    Attributes:
        mechanism: the declared one.
        reports: how many there were.
        bounds: each game with the lower bound of epsilon that it proves.
        smallest_violation: the least realised epsilon that the support of so many reports would have proved to be above
            the declared one, but with the chance `audit_games.MISS`.
        deviations: counts that are not as the law says.
    """

    mechanism: Mechanism
    reports: int
    bounds: Sequence[tuple[Game, float]]
    smallest_violation: float
    deviations: Sequence[Deviation]

    @property
    def epsilon_bound(self) -> float:
        """The highest epsilon that any game proves."""
        return max(bound for _, bound in self.bounds)

    @property
    def broken(self) -> Sequence[tuple[Game, float]]:
        """Games that prove more than the declared epsilon."""
        return [(game, bound) for game, bound in self.bounds if bound > self.mechanism.epsilon]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.broken and not self.deviations


def judge(sample: Sample, alpha: float, *, lawful: bool = True) -> Verdict:
    """Play every game and test every count.

    Args:
        sample: the reports.
        alpha: chance that reports which keep the declared epsilon and law are refused; half of it goes to the games,
            shared evenly, and half to the counts.
        lawful: whether counts should follow the mechanism's p and q. What was made of several reports keeps the
            epsilon only.

    Raises:
        MechanismError: reports of this mechanism cannot be audited, or are none of its.
    """
    made, pair, is_first = sample.mechanism, sample.pair, sample.is_first
    seen = cells(made, sample.packed, pair)
    if sample.lists:
        seen[ORDER] = place_cells(sample.lists, pair)
    of_each = alpha / 2 / (1 + len(seen))
    first, second = (supporters(made, sample.packed, value) for value in pair)
    support = support_game(first, second, is_first)
    games = [support, *(learnt_game(name, found, is_first, of_each) for name, found in seen.items())]
    return Verdict(
        mechanism=made,
        reports=is_first.size,
        bounds=[(game, game.epsilon_bound(of_each)) for game in games],
        smallest_violation=smallest_violation(made.epsilon, support.decided, of_each),
        deviations=deviations(made, sample.packed, pair, is_first, alpha / 2) if lawful else [],
    )
