"""Vectorised samplers: strict, and of the SDK's wire form. Their law is in tests/statistical."""

from fractions import Fraction

import numpy as np
import pytest

from dither_client import randomize
from dither_fleet import randomize_many, samplers
from dither_protocol import MECHANISMS, MechanismError, mechanism


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("d", [2, 13])
def test_every_mechanism_makes_data_of_the_sdks_wire_form(name: str, d: int) -> None:
    """Each datum passes the strict check, and has the type that the SDK's has."""
    if name == "rr" and d != 2:
        return
    chosen = mechanism(name, 1.0, d)
    many = randomize_many(chosen, np.arange(d, dtype=np.int64).repeat(5))
    assert len(many) == 5 * d
    for data in many:
        assert chosen.unpack(chosen.pack(data)) == data
        assert type(data) is type(randomize(chosen, 0))


@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_outside_the_domain_is_refused(index: int) -> None:
    """Nothing is drawn for anybody."""
    with pytest.raises(MechanismError, match="indexes"):
        randomize_many(mechanism("grr", 1.0, 5), np.array([0, index]))


def test_a_mechanism_without_a_sampler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that only the protocol knows gives a clear error."""
    monkeypatch.delitem(samplers._SAMPLERS, "grr")
    with pytest.raises(MechanismError, match="no vectorised sampler"):
        randomize_many(mechanism("grr", 1.0, 5), np.array([1]))


def test_no_devices_make_no_reports() -> None:
    """An empty fleet is no error."""
    assert randomize_many(mechanism("oue", 1.0, 5), np.array([], dtype=np.int64)) == []


def test_uniform_draws_are_below_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws above the last whole multiple of the bound are rejected and drawn again."""
    bound = 3
    last = (1 << 64) // bound * bound - 1
    pool = [
        np.array([2**64 - 1, last, 4], dtype=np.uint64).tobytes(),
        np.array([5], dtype=np.uint64).tobytes(),
    ]
    monkeypatch.setattr(samplers.os, "urandom", lambda count: pool.pop(0))
    assert samplers.uniform_below(bound, 3).tolist() == [2, 1, 2]


def test_grr_maps_every_weight_as_the_sdk_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draw gives the same report on a device and in the fleet."""
    chosen = mechanism("grr", 1.0, 4)
    truth, lie = chosen.truth_weight, chosen.lie_weight  # type: ignore[attr-defined]
    draws = [0, truth - 1, truth, truth + lie - 1, truth + lie, truth + 2 * lie, truth + 3 * lie - 1]
    expected = []
    for draw in draws:
        monkeypatch.setattr("dither_client.entropy.below", lambda bound, draw=draw: draw)
        expected.append(randomize(chosen, 2))
    monkeypatch.setattr(samplers, "uniform_below", lambda bound, count: np.array(draws, dtype=np.uint64))
    assert randomize_many(chosen, np.full(len(draws), 2)) == expected


@pytest.mark.parametrize("name", ["olh", "blh"])
def test_local_hashing_maps_every_weight_as_the_sdk_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed and draw give the same report on a device and in the fleet."""
    chosen = mechanism(name, 1.0, 40)
    truth, lie = chosen.truth_weight, chosen.lie_weight  # type: ignore[attr-defined]
    total = chosen.total_weight  # type: ignore[attr-defined]
    draws = [0, truth - 1, truth, truth + lie - 1, total - 1]
    seeds = [0, 1, 77, 2**31, 2**32 - 1]
    expected = []
    for seed, draw in zip(seeds, draws, strict=True):
        coming = {2**32: seed, total: draw}
        monkeypatch.setattr("dither_client.entropy.below", lambda bound, coming=coming: coming[bound])
        expected.append(randomize(chosen, 39))
    arrays = {2**32: seeds, total: draws}
    monkeypatch.setattr(
        samplers, "uniform_below", lambda bound, count: np.array(arrays[bound], dtype=np.uint64)
    )
    assert randomize_many(chosen, np.full(len(draws), 39)) == expected


@pytest.mark.parametrize("d", [2, 3, 8, 100])
def test_hadamard_maps_every_weight_as_the_sdk_does(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same column, inside or outside, gives the same report on a device and in the fleet."""
    chosen = mechanism("hadamard", 1.0, d)
    truth = chosen.truth_weight  # type: ignore[attr-defined]
    columns = np.arange(chosen.counters)
    for inside in (True, False):
        monkeypatch.setattr(
            samplers, "_with_probability", lambda p, count, inside=inside: np.full(count, inside)
        )
        monkeypatch.setattr(samplers, "uniform_below", lambda bound, count: columns.astype(np.uint64))
        for held in (0, d // 2, d - 1):
            expected = []
            for column in columns.tolist():
                coming = {chosen.counters: column}
                draw = 0 if inside else truth
                monkeypatch.setattr(
                    "dither_client.entropy.below", lambda bound, c=coming, draw=draw: c.get(bound, draw)
                )
                expected.append(randomize(chosen, held))
            assert randomize_many(chosen, np.full(columns.size, held)) == expected


def test_events_of_a_probability_have_an_exact_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event happens where 64 random bits lie below its share of 2^64."""
    border = 2**64 // 3
    words = np.array([0, border - 1, border, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(samplers.os, "urandom", lambda count: words.tobytes())
    assert samplers._with_probability(Fraction(1, 3), 4).tolist() == [True, True, False, False]


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"rr"}))
@pytest.mark.parametrize("epsilon", [0.001, 20.0])
def test_the_largest_mechanisms_have_reports(name: str, epsilon: float) -> None:
    """At 65,536 values and either end of epsilon, reports of the first and last value pass the strict check."""
    chosen = mechanism(name, epsilon, 65_536)
    for data in randomize_many(chosen, np.array([0, 65_535])):
        assert chosen.unpack(chosen.pack(data)) == data
