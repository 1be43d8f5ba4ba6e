"""explain(): the true chances of every family, in plain words."""

import math
from typing import Any

import pytest

from dither_client.explain import explain
from dither_client.testing import MemoryTransport
from dither_protocol.errors import UnknownMetricError
from dither_protocol.registry import Metric, registry_from_document
from support.clients import make_client
from support.registries import COLORS, small_document


def _metric(mechanism: str, **changes: Any) -> Metric:
    document = small_document()
    kind = "dark_mode" if mechanism == "rr" else "color"
    document["metrics"] = {kind: document["metrics"][kind] | {"mechanism": mechanism} | changes}
    return registry_from_document(document).metric(kind)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


@pytest.mark.parametrize("mechanism", ["rr", "grr"])
def test_a_direct_answer_says_how_often_it_is_a_lie(mechanism: str) -> None:
    """One minus p, to a tenth of a percent."""
    metric = _metric(mechanism)
    assert f"In {_percent(1 - metric.mechanism.p)} of all reports the answer that leaves is a lie" in explain(
        metric
    )


@pytest.mark.parametrize("mechanism", ["sue", "oue", "subset"])
def test_an_answer_of_bits_says_how_often_each_is_a_yes(mechanism: str) -> None:
    """P for the person's own answer, q for each other one."""
    oracle = _metric(mechanism).mechanism
    text = explain(_metric(mechanism))
    assert "a yes or no for every possible answer" in text
    assert (
        f"it is a yes in {_percent(oracle.p)} of all reports, for each other answer in {_percent(oracle.q)}"
        in text
    )


@pytest.mark.parametrize("mechanism", ["olh", "blh", "hadamard", "projective"])
def test_an_answer_of_numbers_says_how_often_it_fits(mechanism: str) -> None:
    """P for the person's own answer, q for each other one."""
    oracle = _metric(mechanism).mechanism
    text = explain(_metric(mechanism))
    assert (
        f"fits your own answer in {_percent(oracle.p)} of all reports, each other answer in {_percent(oracle.q)}"
        in text
    )


@pytest.mark.parametrize(
    ("period", "often"),
    [
        ("hour", "at most once per hour"),
        ("week", "at most once per week"),
        ("once", "Asked once for each combination of os"),
    ],
)
def test_it_says_what_is_asked_how_often_and_what_can_be_learnt(period: str, often: str) -> None:
    """The question, the answers, the rhythm, the odds, and what is sent along unchanged."""
    metric = _metric("oue", period=period, expires="2099-12-31")
    text = explain(metric)
    assert text.startswith("Question: Favourite colour\nPossible answers (5): " + ", ".join(COLORS))
    assert often in text
    assert f"by a factor of at most {math.exp(2):.3g} (epsilon 2)" in text
    assert "Sent along unchanged, from closed lists: os: linux, macos." in text


def test_at_a_large_epsilon_nothing_reads_as_safe() -> None:
    """A lie that is rare is not said to be none, and no certainty to be whole or harmless."""
    text = explain(_metric("rr", epsilon=9.0))
    assert "In less than 0.1 % of all reports the answer that leaves is a lie" in text
    assert "by a factor of at most 8,104 (epsilon 9)" in text
    assert "at most 99.99 % sure of one against the other" in text
    assert "nobody" not in text
    assert "a yes in more than 99.9 %" in explain(_metric("sue", epsilon=20.0))
    assert "at most 99.9999998 % sure" in explain(_metric("rr", epsilon=20.0))


def test_a_long_list_of_answers_is_cut() -> None:
    """Twenty are shown, and how many there are."""
    metric = _metric("oue", categories=[f"c{i}" for i in range(30)])
    text = explain(metric)
    assert "Possible answers (30): c0, c1," in text
    assert "c19, ..." in text
    assert "c20" not in text


def test_a_client_explains_its_metrics() -> None:
    """By name; one that it does not have is an error."""
    with make_client(MemoryTransport()) as client:
        assert "dark theme" in client.explain("dark_mode")
        with pytest.raises(UnknownMetricError):
            client.explain("nothing")
