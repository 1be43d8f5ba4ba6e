"""What an audit looks at, and reports as programs print them."""

from typing import Any

import numpy as np
import pytest

from dither_cli.audit_plan import FACTOR, Case, choose, fair_coins, make_case, wire_form
from dither_client import randomize
from dither_protocol import MechanismError, mechanism


def test_a_list_of_values_is_the_bit_report_that_holds_them() -> None:
    """In whatever order, and the order is kept beside it."""
    made = mechanism("oue", 1.0, 10)
    wire, listed = wire_form(made, [9, 0, 3])
    assert wire == wire_form(made, [0, 3, 9])[0]
    assert made.pack(wire) == bytes([0b1001, 0b10])
    assert listed == [9, 0, 3]
    assert wire_form(made, [])[0] == made.unpack(bytes(2))


@pytest.mark.parametrize(("name", "data"), [("oue", "CQI"), ("olh", [5, 1]), ("grr", 3)])
def test_wire_data_has_no_order(name: str, data: Any) -> None:
    """Base64url, a pair of seed and bucket, and an index stay as they are."""
    assert wire_form(mechanism(name, 1.0, 10), data) == (data, None)


@pytest.mark.parametrize("data", [[10], [-1], [1, 1], [True], [1.0], ["a"], [None], [[1]]])
def test_a_list_of_anything_else_is_refused(data: list[Any]) -> None:
    """Values of the domain, each once; True is not 1."""
    with pytest.raises(MechanismError, match="distinct whole numbers in"):
        wire_form(mechanism("subset", 1.0, 10), data)


@pytest.mark.parametrize("data", [10, "x", None, 1.0, True, [1]])
def test_what_is_no_report_is_trouble_and_no_verdict(data: Any) -> None:
    """The first one is named by its position, and not repeated."""
    case = Case(mechanism("grr", 1.0, 10), (0, 1), 2, [0, data], [np.array([True, False])])
    assert case.verdict(1e-6) is None
    assert len(case.trouble) == 1
    assert case.trouble[0].startswith("report 1: data must be")


def test_a_case_without_reports_has_no_verdict() -> None:
    """Nothing is not a pass."""
    assert Case(mechanism("rr", 1.0, 2), (0, 1), 0).verdict(1e-6) is None


def test_a_case_is_about_two_values_and_enough_reports() -> None:
    """Two different ones of the domain, and by default as many reports as find FACTOR times the epsilon."""
    made = mechanism("rr", 1.0, 2)
    case = make_case(made, 1e-7, None)
    assert sorted(case.pair) == [0, 1]
    assert make_case(made, 1e-7, 123).goal == 123
    case.coins = [fair_coins(case.goal)]
    case.data = [randomize(made, case.pair[0] if coin else case.pair[1]) for coin in case.coins[0]]
    verdict = case.verdict(1e-7)
    assert verdict is not None
    assert verdict.smallest_violation <= FACTOR


def test_every_combination_is_chosen_once() -> None:
    """In the order of the table; rr has two values whatever is asked."""
    found = [(made.name, made.d, made.epsilon) for made in choose(["oue", "rr"], [1.0, 2.0], [4, 8])]
    assert found == [("rr", 2, 1.0), ("rr", 2, 2.0)] + [("oue", d, e) for d in (4, 8) for e in (1.0, 2.0)]


def test_coins_are_fair() -> None:
    """Sixty thousand tosses are within seven standard deviations of one half, and not twice the same."""
    coins = fair_coins(60_001)
    assert coins.shape == (60_001,)
    assert abs(int(coins.sum()) - 30_000) < 900
    assert (coins != fair_coins(60_001)).any()
