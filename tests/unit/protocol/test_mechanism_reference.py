from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from dither_protocol import MECHANISMS, Mechanism, mechanism
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import LocalHashing, UnaryEncoding
from support.laws import report_law, supports
from support.reference_values import reference_rows

EPSILONS = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 14.7, 20.0)
SIZES = (2, 3, 16, 1_000, 65_536)
GRID = [("rr", epsilon, 2) for epsilon in EPSILONS] + [
    (name, epsilon, d) for name in MECHANISMS if name != "rr" for epsilon in EPSILONS for d in SIZES
]
LISTED = [
    (name, epsilon, d)
    for name, sizes in {
        "rr": (2,), "grr": (2, 5), "sue": (2, 4), "oue": (2, 4), "subset": (2, 5, 8), "olh": (2, 5), "blh": (2, 5),
        "hadamard": (2, 3, 4, 9), "projective": (2, 4, 7, 10, 15),
    }.items()
    for d in sizes
    for epsilon in (0.01, 1.0, 20.0)
    if (name, epsilon) != ("olh", 20.0)  # half a billion buckets
]  # fmt: skip

# Weights and thresholds are multiples of 2^-32, so p and q are off by at most 2.4e-10.
P_TOLERANCE = 1e-9
# The variance divides by (p-q)^2. At epsilon = 0.1 the gap is 0.025 for two values, and the two errors of 2.4e-10
# change it by 2e-8 and its square by 4e-8; grr at d = 1,024 has a gap of 1e-4, but its rounding is as much smaller.
VARIANCE_TOLERANCE = 1e-7  # relative
FORMULA_TOLERANCE = 1e-9  # relative: at the reference's own p and q there is no rounding of weights


def _known_rows() -> list[dict[str, Any]]:
    return [row for row in reference_rows("mechanisms") if row["mechanism"] in MECHANISMS]


def _label(row: dict[str, Any]) -> str:
    return f"{row['mechanism']}-{row['epsilon']}-{row['d']}"


def _worst_ratio(made: Mechanism) -> Fraction:
    """The greatest ratio of a report's probabilities under two answers, from the sampler's integers."""
    if isinstance(made, UnaryEncoding):
        keep, noise = Fraction(made.keep_threshold, 2**32), Fraction(made.noise_threshold, 2**32)
        # Two answers differ in two bits, and the bits are independent, whatever d is.
        one, zero = keep / noise, (1 - keep) / (1 - noise)
        return max(one, 1 / one) * max(zero, 1 / zero)
    # Every other report weighs one of two weights, and all answers have the same total.
    return Fraction(made.truth_weight, made.lie_weight)  # type: ignore[attr-defined]


def test_the_reference_has_rows_for_all_mechanisms_but_two() -> None:
    """The comparison is not empty; `rr` is `grr`, and `projective` is checked against incidence."""
    assert {row["mechanism"] for row in reference_rows("mechanisms")} == set(MECHANISMS) - {
        "rr",
        "projective",
    }


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_p_and_q_are_those_of_the_reference(row: dict[str, Any]) -> None:
    """P and q agree with values computed independently, up to the rounding of the weights."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    assert made.p == pytest.approx(row["p"], rel=0, abs=P_TOLERANCE)
    assert made.q == pytest.approx(row["q"], rel=0, abs=P_TOLERANCE)
    assert made.gap == pytest.approx(row["p"] - row["q"], rel=0, abs=P_TOLERANCE)


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_parameters_are_those_of_the_reference(row: dict[str, Any]) -> None:
    """The number of buckets, the size of a subset and the order of the matrix agree."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    named = {key: row[key] for key in ("g", "w", "order", "K") if key in row}
    assert named == {key: getattr(made, key) for key in named}
    assert bool(named) == (row["mechanism"] in ("subset", "olh", "blh", "hadamard"))


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_the_formula_of_the_variance_is_that_of_the_reference(
    row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the reference's own p and q, `n_variance` is its column without any rounding of weights."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    for key, value in (("p", row["p"]), ("q", row["q"]), ("gap", row["p"] - row["q"])):
        monkeypatch.setitem(vars(made), key, value)  # where a frozen mechanism keeps what it has computed
    assert made.n_variance(0.0) == pytest.approx(row["n_var_f0"], rel=FORMULA_TOLERANCE)
    assert made.n_variance(0.1) == pytest.approx(row["n_var_f01"], rel=FORMULA_TOLERANCE)


@pytest.mark.parametrize("row", _known_rows(), ids=_label)
def test_the_variance_among_reporters_is_that_of_the_reference(row: dict[str, Any]) -> None:
    """N times the variance agrees at true shares 0 and 0.1."""
    made = mechanism(row["mechanism"], row["epsilon"], row["d"])
    assert made.n_variance(0.0) == pytest.approx(row["n_var_f0"], rel=VARIANCE_TOLERANCE)
    assert made.n_variance(0.1) == pytest.approx(row["n_var_f01"], rel=VARIANCE_TOLERANCE)


@pytest.mark.parametrize(("name", "epsilon", "d"), GRID)
def test_the_weights_never_spend_more_than_declared(name: str, epsilon: float, d: int) -> None:
    """The worst ratio of the integer weights is at most e^epsilon, and not idly far below it (P4)."""
    made = mechanism(name, epsilon, d)
    ratio = _worst_ratio(made)
    with localcontext(prec=80):
        loss = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        assert loss <= Decimal(str(epsilon))
        assert loss >= Decimal(str(epsilon)) * Decimal("0.999")
        assert abs(loss - made.realized_epsilon()) < Decimal("1e-45")
    assert made.realized_epsilon() <= Decimal(str(epsilon))


@pytest.mark.parametrize(("name", "epsilon", "d"), LISTED)
def test_no_report_tells_two_answers_apart_by_more(name: str, epsilon: float, d: int) -> None:
    """Over all reports of a small domain, the worst ratio of two answers is what the weights alone give."""
    made = mechanism(name, epsilon, d)
    laws = [report_law(made, held) for held in range(d)]
    assert {sum(law.values()) for law in laws} == {1}
    worst = max(one[data] / other[data] for one in laws for other in laws for data in one)
    if isinstance(made, LocalHashing) and len({bucket(0, held, made.g) for held in range(d)}) == 1:
        assert worst == 1  # under this seed all values share one bucket
    else:
        assert worst == _worst_ratio(made)


@pytest.mark.parametrize(("name", "epsilon", "d"), [case for case in LISTED if case[0] not in ("olh", "blh")])
def test_p_and_q_are_the_chances_of_support(name: str, epsilon: float, d: int) -> None:
    """Added up over all reports, a value is supported with p by who holds it and with q by anybody else."""
    made = mechanism(name, epsilon, d)
    for held in range(d):
        law = report_law(made, held)
        for v in range(d):
            chance = sum(share for data, share in law.items() if supports(made, data, v))
            assert chance == (made.p_exact if v == held else made.q_exact)


@pytest.mark.parametrize("name", ["olh", "blh"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0])
def test_p_of_local_hashing_is_the_chance_of_the_true_bucket(name: str, epsilon: float) -> None:
    """Under every seed the true bucket has p; an independent one has q on average over the buckets."""
    made = mechanism(name, epsilon, 6)
    assert isinstance(made, LocalHashing)
    for seed in (0, 5, 2**32 - 1):
        law = report_law(made, 3, seed)
        assert law[bucket(seed, 3, made.g)] == made.p_exact
        assert sum(law.values()) / made.g == made.q_exact


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("d", [2, 3, 4, 5, 7, 10, 16, 33, 100, 128, 300])
def test_subsets_have_the_best_size(epsilon: float, d: int) -> None:
    """No other size has less variance at f = 0, of all that a subset can have."""
    made = mechanism("subset", epsilon, d)
    weight, lie = made.truth_weight, made.lie_weight  # type: ignore[attr-defined]

    def noise(w: int) -> Fraction:
        total = w * weight + (d - w) * lie
        p = Fraction(w * weight, total)
        q = Fraction(w * weight * (w - 1) + (d - w) * lie * w, total * (d - 1))
        return q * (1 - q) / (p - q) ** 2

    sizes = range(1, d)
    assert noise(made.w) == min(map(noise, sizes))  # type: ignore[attr-defined]
