"""What an onlooker sees of packed reports."""

import numpy as np
import pytest

from dither_client import randomize
from dither_estimator.audit_events import cells, place_cells, supporters
from dither_estimator.audit_laws import both_share, deviations, index_law
from dither_protocol import Mechanism, mechanism
from dither_protocol.mechanisms import LocalHashing
from support.laws import report_law, supports

EVERY = [
    ("rr", 2), ("grr", 7), ("sue", 9), ("oue", 20), ("subset", 17), ("olh", 9), ("blh", 9), ("hadamard", 12),
    ("projective", 40),
]  # fmt: skip


def _reports(made: Mechanism, n: int) -> list[object]:
    return [randomize(made, number % made.d) for number in range(n)]


def _pack(made: Mechanism, reports: list[object]) -> bytes:
    return b"".join(map(made.pack, reports))


@pytest.mark.parametrize(("name", "d"), EVERY)
def test_supporters_are_those_of_the_definition(name: str, d: int) -> None:
    """Report by report, for every value."""
    made = mechanism(name, 1.0, d)
    reports = _reports(made, 200)
    for value in range(d):
        expected = [supports(made, data, value) for data in reports]  # type: ignore[arg-type]
        assert supporters(made, _pack(made, reports), value).tolist() == expected


@pytest.mark.parametrize(("name", "d"), [*EVERY, ("grr", 10_000), ("oue", 300)])
def test_equal_cells_are_equal_to_an_onlooker(name: str, d: int) -> None:
    """Cells are small numbers, one for each report, and a report has the same cell wherever it stands."""
    made = mechanism(name, 1.0, d)
    reports = _reports(made, 100)
    for found in cells(made, _pack(made, reports), (0, d - 1)).values():
        assert found.shape == (100,)
        assert found.min() >= 0
        assert found.max() < 1 << 16
    again = cells(made, _pack(made, reports[::-1]), (0, d - 1))
    for kind, found in cells(made, _pack(made, reports), (0, d - 1)).items():
        assert found.tolist() == again[kind].tolist()[::-1]


def test_small_bit_reports_are_cells_of_their_own() -> None:
    """So a rule can learn anything that a report of twelve bits may betray."""
    made = mechanism("oue", 1.0, 12)
    reports = sorted(map(str, _reports(made, 300)))
    found = cells(made, _pack(made, list(reports)), (0, 1))["bits"]
    assert len(set(found.tolist())) == len(set(reports))


def test_places_tell_order_and_absence_apart() -> None:
    """Which of two values comes first, where they stand, and that one is not there."""
    lists = [[3, 5], [5, 3], [3], [5], [], [1, 3, 5], [1, 3, 5]]
    found = place_cells(lists, (3, 5)).tolist()
    assert len(set(found)) == 6
    assert found[5] == found[6]


def test_far_places_are_one() -> None:
    """The number of cells is bounded however long lists are."""
    longest = place_cells([list(range(1_000))], (998, 999))
    assert longest.max() < 200


@pytest.mark.parametrize(
    ("name", "d"), [("rr", 2), ("grr", 5), ("sue", 3), ("oue", 3), ("subset", 6), ("hadamard", 4)]
)
def test_the_share_that_supports_both_values_is_that_of_the_law(name: str, d: int) -> None:
    """Summed over every report of a small domain."""
    made = mechanism(name, 1.0, d)
    law = report_law(made, 0)
    exact = sum(chance for data, chance in law.items() if supports(made, data, 0) and supports(made, data, 1))
    assert both_share(made) == pytest.approx(float(exact), abs=1e-9)


def test_hashed_values_share_a_bucket_by_chance() -> None:
    """Both are supported p/g of the time."""
    made = mechanism("olh", 1.0, 30)
    assert isinstance(made, LocalHashing)
    assert both_share(made) == pytest.approx(made.p / made.g)


@pytest.mark.parametrize(("name", "d"), [("grr", 5), ("hadamard", 6), ("projective", 9)])
def test_the_law_of_an_index_is_exact(name: str, d: int) -> None:
    """The chance of every index, from the sampler's integers."""
    made = mechanism(name, 1.5, d)
    for held in range(d):
        exact = report_law(made, held)
        assert index_law(made, held) == pytest.approx([float(exact[y]) for y in range(made.counters)])


@pytest.mark.parametrize("name", ["olh", "blh"])
def test_repeated_seeds_are_found(name: str) -> None:
    """Three seeds that were used before among 600: of 32 bits that is no chance."""
    made = mechanism(name, 1.0, 8)
    reports = _reports(made, 600)
    for place in (100, 200, 300):
        earlier = reports[place - 1]
        assert isinstance(earlier, list)
        reports[place] = list(earlier)
    held = np.random.default_rng(5).random(600) < 0.5
    found = [one.what for one in deviations(made, _pack(made, reports), (0, 1), held, 1e-6)]
    assert "seeds that repeat an earlier one" in found
