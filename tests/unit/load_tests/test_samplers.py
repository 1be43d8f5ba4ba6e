"""Vectorised samplers: strict, and of the SDK's wire form. Their law is in tests/statistical."""

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
