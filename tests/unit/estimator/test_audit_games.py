"""Guesses and the epsilon that they prove."""

import math

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from dither_estimator.audit_games import (
    Game,
    decided_share,
    epsilon_bounds,
    learnt_game,
    reports_for,
    smallest_violation,
    support_game,
)
from dither_protocol import mechanism
from support.laws import report_law, supports

DECIDED = 400


def _odds(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


@pytest.mark.parametrize(("right", "decided"), [(1, 1), (7, 9), (200, 250), (9_000, 10_000)])
def test_the_bound_is_the_exact_limit(right: int, decided: int) -> None:
    """At the bound, so many right guesses or more have just the probability alpha."""
    alpha = 1e-3
    bound = Game("any", right, decided).epsilon_bound(alpha)
    if bound > 0:
        assert bdtrc(right - 1, decided, _odds(bound)) == pytest.approx(alpha)
    else:
        assert bdtrc(right - 1, decided, 0.5) >= alpha


def test_nothing_is_proved_by_nothing_and_by_chance() -> None:
    """No guesses, no right ones, and half of them: the bound is 0 and never negative."""
    bounds = epsilon_bounds(np.array([0, 0, 50, 30]), np.array([0, 100, 100, 100]), 1e-6)
    assert bounds.tolist() == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_a_true_epsilon_is_refused_as_often_as_alpha_says(epsilon: float) -> None:
    """Over all numbers of right guesses: at most alpha where the epsilon is realised in full, and nearly so."""
    alpha = 1e-3
    right = np.arange(DECIDED + 1)
    refused = epsilon_bounds(right, np.full(right.size, DECIDED), alpha) > epsilon
    first = int(refused.argmax())
    assert refused[first:].all()
    chance = bdtrc(first - 1, DECIDED, _odds(epsilon))
    assert alpha / 3 < chance <= alpha


@pytest.mark.parametrize(("epsilon", "miss"), [(0.5, 0.1), (1.0, 1e-6), (3.0, 0.5)])
def test_the_smallest_violation_is_missed_as_often_as_it_says(epsilon: float, miss: float) -> None:
    """Where it is realised, the bound stays at or below the declared epsilon with probability ``miss``."""
    alpha = 1e-6
    realised = smallest_violation(epsilon, DECIDED, alpha, miss)
    right = np.arange(DECIDED + 1)
    found = epsilon_bounds(right, np.full(right.size, DECIDED), alpha) > epsilon
    if math.isinf(realised):
        assert not found.any()
    else:
        assert bdtr(int(found.argmax()) - 1, DECIDED, _odds(realised)) == pytest.approx(miss, rel=1e-6)


def test_too_few_guesses_find_no_violation_at_all() -> None:
    """Ten right guesses of ten do not contradict epsilon 1 at one in a million."""
    assert smallest_violation(1.0, 10, 1e-6) == math.inf


@pytest.mark.parametrize(
    ("name", "d"), [("rr", 2), ("grr", 5), ("sue", 3), ("oue", 3), ("subset", 6), ("hadamard", 4)]
)
def test_the_share_of_decided_reports_is_that_of_the_law(name: str, d: int) -> None:
    """Summed over every report of a small domain."""
    made = mechanism(name, 1.0, d)
    one_alone = sum(
        chance
        for data, chance in report_law(made, 0).items()
        if supports(made, data, 0) != supports(made, data, 1)
    )
    assert decided_share(made) == pytest.approx(float(one_alone))


def test_the_reports_that_are_planned_find_what_they_shall() -> None:
    """As many as are decided on average find the planned violation; three quarters of them do not."""
    made = mechanism("oue", 1.0, 16)
    decided = reports_for(made, 1.5, 1e-8) * decided_share(made)
    assert smallest_violation(1.0, int(decided), 1e-8) <= 1.5
    assert smallest_violation(1.0, int(decided * 0.75), 1e-8) > 1.5


def test_the_support_speaks_where_it_speaks_for_one_value_alone() -> None:
    """Both and none are no guesses."""
    first_in = np.array([True, True, False, False, True])
    second_in = np.array([False, True, True, False, False])
    held = np.array([True, True, True, False, False])
    assert support_game(first_in, second_in, held) == Game("support", right=1, decided=3)


def test_a_leak_in_a_few_cells_is_learnt() -> None:
    """One report of ten says what was answered; the others say nothing. The rule speaks in those cells only."""
    rng = np.random.default_rng(1)
    held = rng.random(20_000) < 0.5
    noise = rng.integers(0, 50, held.size)
    cells = np.where(rng.random(held.size) < 0.1, 50 + held, noise)
    game = learnt_game("cells", cells, held, 1e-6)
    assert game.decided == int((cells[10_000:] >= 50).sum())
    assert game.right == game.decided
    assert game.epsilon_bound(1e-6) > 3


def test_what_was_learnt_by_heart_proves_nothing() -> None:
    """Where every report is a cell of its own, the first half teaches nothing about the second."""
    held = np.random.default_rng(2).random(2_000) < 0.5
    assert learnt_game("cells", np.arange(2_000), held, 1e-6).decided == 0


def test_reports_that_do_not_depend_on_the_answer_prove_nothing() -> None:
    """Few cells, many reports: the rule guesses, and is right half of the time."""
    rng = np.random.default_rng(3)
    game = learnt_game("cells", rng.integers(0, 9, 40_000), rng.random(40_000) < 0.5, 1e-6)
    assert game.epsilon_bound(1e-6) < 0.1
