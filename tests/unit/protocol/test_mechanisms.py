import dataclasses
import inspect
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_protocol import MECHANISMS, Mechanism, MechanismError, mechanism
from dither_protocol.mechanisms import MAX_D, MAX_EPSILON, MIN_EPSILON, LocalHashing, memoized
from dither_protocol.mechanisms.unary import UnaryEncoding
from dither_protocol.mechanisms.weights import (
    SCALE,
    exact_epsilon,
    exp_floor,
    flip_threshold,
    log_ratio,
)
from support.protocol_samples import MARKER, refused

NAMES = list(MECHANISMS)
epsilons = st.floats(MIN_EPSILON, MAX_EPSILON)


def _any(name: str, epsilon: float = 1.0, d: int = 12) -> Mechanism:
    return mechanism(name, epsilon, 2 if name == "rr" else d)


@st.composite
def _mechanisms(draw: st.DrawFn) -> Mechanism:
    return _any(draw(st.sampled_from(NAMES)), draw(epsilons), draw(st.integers(2, 300)))


def test_names() -> None:
    """The mechanisms of this version, in the order of the design's table."""
    assert NAMES == ["rr", "grr", "sue", "oue", "subset", "olh", "blh", "hadamard", "projective"]
    assert [cls.name for cls in MECHANISMS.values()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_made_by_name(name: str) -> None:
    """`mechanism` gives what it was asked for."""
    made = _any(name, 1.5)
    assert (made.name, made.epsilon, type(made)) == (name, 1.5, MECHANISMS[name])


@pytest.mark.parametrize("name", ["", "GRR", "Auto", MARKER])
def test_unknown_name_is_refused(name: str) -> None:
    """An unknown name is refused with the list of known ones, and is not repeated."""
    with refused(MechanismError, "unknown mechanism; known are auto, rr, grr, sue, oue, subset, olh, blh, "):
        mechanism(name, 1.0, 2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "epsilon",
    [
        0,
        0.0,
        -1.0,
        math.nan,
        math.inf,
        -math.inf,
        0.00099,
        20.000001,
        10**400,
        True,
        "1.0",
        None,
        Decimal(1),
        1j,
    ],
)
def test_bad_epsilon_is_refused(name: str, epsilon: float) -> None:
    """Epsilon is a number from 0.001 to 20: no zero, negative, NaN, infinity, True or text."""
    with pytest.raises(MechanismError, match=r"^epsilon must be a number from 0\.001 to 20$"):
        _any(name, epsilon)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rr"])
@pytest.mark.parametrize("d", [1, 0, -2, MAX_D + 1, 2.0, True, "2", None])
def test_bad_domain_size_is_refused(name: str, d: int) -> None:
    """A domain has 2 to 65,536 values, counted by an int."""
    with pytest.raises(MechanismError, match=r"^d must be a whole number from 2 to 65536$"):
        mechanism(name, 1.0, d)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_inside(name: str) -> None:
    """The smallest and largest epsilon and domain exist, and have a signal."""
    for epsilon in (MIN_EPSILON, MAX_EPSILON):
        for d in (2, MAX_D):
            assert 0 < _any(name, epsilon, d).gap < 1


def test_rr_is_for_two_values() -> None:
    """`rr` is refused for more than two values, and is `grr` in everything but the name for two."""
    with pytest.raises(MechanismError, match="rr is for two values"):
        mechanism("rr", 1.0, 3)
    rr, grr = mechanism("rr", 1.0, 2), mechanism("grr", 1.0, 2)
    assert (rr.p_exact, rr.q_exact, rr.counters) == (grr.p_exact, grr.q_exact, grr.counters)
    assert rr != grr


@pytest.mark.parametrize("name", NAMES)
def test_equal_parameters_make_equal_mechanisms(name: str) -> None:
    """Two mechanisms are equal, and one key of a dict, when class, epsilon and d are."""
    assert _any(name) == _any(name)
    assert _any(name, 1) == _any(name, 1.0)
    assert isinstance(_any(name, 1).epsilon, float)
    assert len({_any(name), _any(name), _any(name, 1)}) == 1
    assert _any(name) != _any(name, 1.5)
    assert len({_any(other) for other in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_attribute_is_frozen(name: str) -> None:
    """No attribute can be set: neither a field, nor p and q once computed, nor a new one."""
    made = _any(name)
    public = [key for key, _ in inspect.getmembers(made) if not key.startswith("_")]
    assert {"epsilon", "d", "p", "q", "gap"} <= set(public)
    for key in [*public, "brand_new"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, key, 0.5)
    assert made == _any(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.p


@pytest.mark.parametrize("name", ["rr", "grr", "sue", "oue"])
def test_every_attribute_of_a_chain_is_frozen(name: str) -> None:
    """A chain is no other than its base: neither its own field nor one of its numbers can be set."""
    made = memoized(name, 1.0, 2, 2.0)
    for key in ("epsilon", "epsilon_permanent", "d", "p", "q", "brand_new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, key, 0.5)
    assert made == memoized(name, 1.0, 2, 2.0) != memoized(name, 1.0, 2, 2.5)


def test_interface_is_abstract() -> None:
    """The interface itself, and a family without its thresholds or its buckets, cannot be made."""
    for cls in (Mechanism, UnaryEncoding, LocalHashing):
        with pytest.raises(TypeError, match="abstract"):
            cls(1.0, 2)  # type: ignore[abstract]


def _papers(epsilon: float, d: int) -> dict[str, tuple[float, float]]:
    """The table of design section 6, in doubles."""
    e, s = math.exp(epsilon), math.exp(epsilon / 2)
    g = max(2, round(e + 1))

    def subset(w: int) -> tuple[float, float]:
        total = w * e + d - w
        return w * e / total, (w * e * (w - 1) + (d - w) * w) / ((d - 1) * total)

    def projective(r: int, t: int) -> tuple[float, float]:
        k, a, b = ((r**n - 1) // (r - 1) for n in (t, t - 1, t - 2))
        z = e * a + k - a
        return e * a / z, (e * b + a - b) / z

    sizes = (max(1, math.floor(d / (e + 1))), max(1, math.ceil(d / (e + 1))))
    made = mechanism("projective", epsilon, d)
    return {
        "rr": (e / (e + 1), 1 / (e + 1)),
        "grr": (e / (e + d - 1), 1 / (e + d - 1)),
        "sue": (s / (s + 1), 1 / (s + 1)),
        "oue": (1 / 2, 1 / (e + 1)),
        "subset": min((subset(w) for w in sizes), key=lambda pq: pq[1] * (1 - pq[1]) / (pq[0] - pq[1]) ** 2),
        "olh": (e / (e + g - 1), 1 / g),
        "blh": (e / (e + 1), 1 / 2),
        "hadamard": (e / (e + 1), 1 / 2),
        "projective": projective(made.r, made.t),  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("d", [7, 100])
def test_p_and_q_are_those_of_the_papers(epsilon: float, d: int) -> None:
    """Both p and q follow the formulas of design section 6, up to the 2^-32 of the weights."""
    expected = _papers(epsilon, d)
    assert expected.keys() == MECHANISMS.keys()
    for name, (p, q) in expected.items():
        made = _any(name, epsilon, d)
        assert made.p == pytest.approx(p, abs=2.4e-10)
        assert made.q == pytest.approx(q, abs=2.4e-10)
        assert made.gap == pytest.approx(p - q, abs=4.8e-10)


@given(_mechanisms())
def test_doubles_come_from_the_exact_fractions(made: Mechanism) -> None:
    """p, q and their gap are the exact fractions, each rounded once; the truth is always the likelier."""
    assert made.p == float(made.p_exact)
    assert made.q == float(made.q_exact)
    assert made.gap == float(made.p_exact - made.q_exact)
    assert 0 < made.q_exact < made.p_exact < 1


@given(_mechanisms())
def test_realized_epsilon_is_at_most_the_declared(made: Mechanism) -> None:
    """The privacy loss of the integer weights is never above what is declared, and hardly below."""
    realized = made.realized_epsilon()
    assert realized <= Decimal(made.epsilon)
    assert realized > Decimal(made.epsilon) * (1 - Decimal("1e-5")) or made.epsilon > 10


@given(_mechanisms(), st.floats(0, 1))
def test_n_variance_is_the_formula(made: Mechanism, f: float) -> None:
    """The variance times n is [f p(1-p) + (1-f) q(1-q)] / (p-q)^2, here in exact fractions."""
    p, q, share = made.p_exact, made.q_exact, Fraction(f)
    exact = (share * p * (1 - p) + (1 - share) * q * (1 - q)) / (p - q) ** 2
    assert made.n_variance(f) == pytest.approx(float(exact), rel=1e-9)


@given(epsilons)
def test_weights_are_rounded_toward_more_noise(epsilon: float) -> None:
    """The weight of the truth is the largest, and a flip's threshold the smallest, that keeps the promise."""
    declared = exact_epsilon(epsilon)
    truth = exp_floor(epsilon)
    assert log_ratio(truth, SCALE) <= declared < log_ratio(truth + 1, SCALE)
    flip = flip_threshold(epsilon)
    assert log_ratio(SCALE - flip, flip) <= declared
    if flip > 1:
        assert log_ratio(SCALE - flip + 1, flip - 1) > declared


def test_epsilon_counts_as_typed() -> None:
    """The declared epsilon is the smaller of what was typed and what the double holds."""
    above, below = 0.1, 0.3  # doubles just above and just below what is typed
    assert exact_epsilon(above) == Decimal("0.1") < Decimal(above)
    assert exact_epsilon(below) == Decimal(below) < Decimal("0.3")


def test_weights_fit_simulations() -> None:
    """The largest total weight fits into a signed 64-bit integer."""
    grr = mechanism("grr", MAX_EPSILON, MAX_D)
    assert grr.p_exact.denominator < 2**63
    assert exp_floor(MAX_EPSILON) + (MAX_D - 1) * SCALE < 2**63
