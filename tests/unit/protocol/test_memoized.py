"""Both rounds of memoised collection: reference values, the realised epsilons, and the registry's rules for it."""

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from dither_protocol import MechanismError, RegistryError, mechanism
from dither_protocol.mechanisms import Memoized, MemoizedResponse, memoized
from dither_protocol.registry import Metric, decode_definition, encode_definition, registry_from_document
from dither_protocol.registry.guarantees import guarantees
from support.memo import memo_document, permanent_law, report_law
from support.reference_values import reference_rows

EPSILONS = [(0.001, 0.002), (0.01, 8.0), (0.5, 1.0), (1.0, 2.0), (2.0, 4.0), (7.5, 8.0), (8.0, 16.0)]
SMALL = [("rr", 2), *((name, d) for name in ("grr", "sue", "oue") for d in (2, 3, 4))]
LARGE = [(name, d) for name in ("grr", "sue", "oue") for d in (16, 1_024)]
WITHIN = 1e-6


def _worst(laws: list[list[Fraction]]) -> float:
    """The logarithm of the greatest ratio of the chances of one report under two answers."""
    ratios = (max(chances) / min(chances) for chances in zip(*laws, strict=True))
    return max(math.log(ratio) for ratio in ratios)


@pytest.mark.parametrize("row", reference_rows("longitudinal"))
def test_the_reference_is_reproduced(row: dict[str, Any]) -> None:
    """Second-round epsilon and chained p, q of memoised GRR; weights are multiples of 2^-32."""
    made = memoized("grr", row["epsilon_report"], row["g"], row["epsilon_permanent"])
    assert made.second_epsilon == pytest.approx(row["epsilon_instantaneous"], abs=1e-9)
    assert (made.p, made.q) == pytest.approx((row["p_chain"], row["q_chain"]), abs=1e-9)


@pytest.mark.parametrize(("epsilon", "permanent"), EPSILONS)
@pytest.mark.parametrize(("name", "d"), SMALL)
def test_one_report_keeps_its_epsilon_by_the_transition_matrix(
    name: str, d: int, epsilon: float, permanent: float
) -> None:
    """The matrix of both rounds: not above the declared epsilon, within a millionth of it, and what p, q say."""
    made = memoized(name, epsilon, d, permanent)
    realized = _worst([report_law(made, held) for held in range(d)])
    assert epsilon - WITHIN <= realized <= epsilon + 1e-14  # of the logarithm in doubles
    assert float(made.realized_epsilon()) == pytest.approx(realized, abs=1e-12)
    law = report_law(made, 0)
    supports_held = [law[0]] if isinstance(made, MemoizedResponse) else law[1::2]
    assert sum(supports_held, Fraction(0)) == made.p_exact
    if isinstance(made, MemoizedResponse):
        assert law[1] == made.q_exact
    else:
        assert sum((x for bits, x in enumerate(law) if bits & 2), Fraction(0)) == made.q_exact


@pytest.mark.parametrize(("epsilon", "permanent"), EPSILONS)
@pytest.mark.parametrize(("name", "d"), SMALL)
def test_a_permanent_answer_keeps_its_epsilon(name: str, d: int, epsilon: float, permanent: float) -> None:
    """By the matrix of the first round: not above the declared one."""
    made = memoized(name, epsilon, d, permanent)
    laws = [permanent_law(made, held) for held in range(d)]
    assert all(sum(law) == 1 for law in laws)
    assert _worst(laws) <= permanent + 1e-14
    assert float(made.realized_permanent_epsilon()) == pytest.approx(_worst(laws), abs=1e-12)


@pytest.mark.parametrize(("epsilon", "permanent"), EPSILONS)
@pytest.mark.parametrize(("name", "d"), LARGE)
def test_large_domains_keep_both_epsilons(name: str, d: int, epsilon: float, permanent: float) -> None:
    """By the integers; the chain is the fresh oracle at the epsilon of one report, in all that is counted."""
    made = memoized(name, epsilon, d, permanent)
    assert epsilon - WITHIN <= made.realized_epsilon() <= epsilon
    assert made.realized_permanent_epsilon() <= permanent
    fresh = mechanism(name, epsilon, d)
    assert (made.p, made.q) == pytest.approx((fresh.p, fresh.q), abs=1e-9)
    assert (made.form, made.packed_size, made.counters, made.report_bits) == (
        fresh.form,
        fresh.packed_size,
        fresh.counters,
        fresh.report_bits,
    )
    assert made.loss_probability == pytest.approx(fresh.loss_probability, abs=1e-9)


@pytest.mark.parametrize(("name", "d"), [*SMALL, *LARGE])
def test_p_and_q_are_those_of_both_rounds(name: str, d: int) -> None:
    """That is, p = p1 p2 + (1-p1) q2, likewise q; exactly (invariant C5)."""
    made = memoized(name, 1.0, d, 2.0)
    p1, q1, p2, q2 = made.permanent_p, made.permanent_q, made.second_p, made.second_q
    assert made.p_exact == p1 * p2 + (1 - p1) * q2
    assert made.q_exact == q1 * p2 + (1 - q1) * q2


@pytest.mark.parametrize(("name", "d"), [("rr", 2), ("grr", 8), ("sue", 8), ("oue", 8)])
def test_the_floor_is_the_variance_of_the_permanent_round(name: str, d: int) -> None:
    """That of the fresh oracle at epsilon_permanent; below that of one report."""
    made = memoized(name, 1.0, d, 2.0)
    for share in (0.0, 0.1, 1.0):
        assert made.n_floor(share) == pytest.approx(mechanism(name, 2.0, d).n_variance(share), rel=1e-7)
        assert made.n_floor(share) < made.n_variance(share)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("subset", 1.0, 8, 2.0), "takes auto, rr, grr, sue, oue"),
        (("olh", 1.0, 8, 2.0), "takes auto"),
        (("auto", 2.0, 8, 2.0), "epsilon must be below epsilon_permanent"),
        (("grr", 3.0, 8, 2.0), "epsilon must be below epsilon_permanent"),
        (("grr", 1.0, 1_025, 2.0), "at most 1,024 values"),
        (("rr", 1.0, 3, 2.0), "two values"),
        (("grr", 1.0, 8, 20.5), "epsilon_permanent must be a number"),
        (("grr", 1.0, 8, True), "epsilon_permanent must be a number"),
        *(((name, 2.0, 8, 2.0 + 1e-11), "too close") for name in ("grr", "sue", "oue")),
    ],
)
def test_what_has_no_chain_is_refused(arguments: tuple[Any, ...], match: str) -> None:
    """With a reason; a second round without noise is none."""
    with pytest.raises(MechanismError, match=match):
        memoized(*arguments)


@pytest.mark.parametrize("d", [2, 4, 8, 16, 128, 1_024])
def test_auto_takes_the_least_variance_of_the_three(d: int) -> None:
    """By the rule of fresh metrics: within 5 % of the best, the fewest bits."""
    made = memoized("auto", 1.0, d, 2.0)
    chains = [memoized(name, 1.0, d, 2.0) for name in ("grr", "sue", "oue")]
    least = min(chain.n_variance(1 / d) for chain in chains)
    good = [chain for chain in chains if chain.n_variance(1 / d) <= 1.05 * least]
    assert made == min(good, key=lambda chain: chain.report_bits)
    assert isinstance(made, Memoized)


def _mood(document: Mapping[str, Any]) -> Metric:
    return registry_from_document(document).metric("mood")


def test_a_memoised_metric_is_read_with_its_keys() -> None:
    """`auto`, and a boolean, whose chain is that of two values; the definition in the store is read back alike."""
    metric = _mood(memo_document("auto"))
    assert (metric.collection, metric.epsilon, metric.epsilon_permanent) == ("memoized", 1.0, 2.0)
    assert metric.max_distinct_values == 3
    assert isinstance(metric.mechanism, Memoized)
    boolean = _mood(memo_document("rr", type="boolean", categories=None, max_distinct_values=2))
    assert (boolean.mechanism.name, boolean.mechanism.d) == ("rr", 2)
    registry = registry_from_document(memo_document("oue"))
    assert decode_definition(encode_definition(registry, "mood")) == registry.metric("mood")


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"epsilon_permanent": None}, "epsilon_permanent"),
        ({"max_distinct_values": None}, "max_distinct_values"),
        ({"epsilon_permanent": 1.0}, "epsilon"),
        ({"epsilon_permanent": 21.0}, "epsilon_permanent"),
        ({"epsilon_permanent": "2"}, "epsilon_permanent"),
        *(({"max_distinct_values": value}, "max_distinct_values") for value in (0, 6, 1.0, True, "1")),
        ({"mechanism": "subset"}, "mechanism"),
        ({"categories": [f"c{i}" for i in range(1_025)]}, "mechanism"),
        ({"collection": "fresh"}, "epsilon_permanent"),
        ({"collection": "fresh", "epsilon_permanent": None}, "max_distinct_values"),
    ],
)
def test_bad_keys_are_named(keys: dict[str, Any], path: str) -> None:
    """Each with the path of what is wrong; keys of memoised collection say nothing about a fresh metric."""
    with pytest.raises(RegistryError) as caught:
        registry_from_document(memo_document(**keys))
    assert caught.value.path == f"metrics.mood.{path}"


def test_what_is_memoised_is_part_of_the_meaning() -> None:
    """Each key changes params_hash; that of a fresh metric is what it was before there were these keys."""
    hashes = {
        _mood(memo_document(**keys)).params_hash
        for keys in ({}, {"epsilon_permanent": 3.0}, {"max_distinct_values": 2}, {"mechanism": "oue"})
    }
    fresh = memo_document(collection=None, epsilon_permanent=None, max_distinct_values=None)
    assert len(hashes | {_mood(fresh).params_hash}) == 5
    assert _mood(fresh).params_hash == "5952ee32"


def test_the_guarantees_have_their_assumptions() -> None:
    """For life by distinct values; beside it times the second round for grr, and nothing useful for bits."""
    report, life, reports = guarantees(_mood(memo_document("grr")))
    assert (report.epsilon, life.epsilon) == (1.0, 6.0)
    assert "change at the same times" in life.assumption
    assert "come back to those of the same earlier times" in life.assumption
    assert "Computational" in life.assumption
    chain = _mood(memo_document("grr")).mechanism
    assert isinstance(chain, MemoizedResponse)
    assert reports.epsilon == chain.second_epsilon
    bits = guarantees(_mood(memo_document("oue")))[-1]
    assert bits.epsilon is None
    assert "nothing useful" in bits.assumption
    fresh = memo_document(collection=None, epsilon_permanent=None, max_distinct_values=None)
    assert guarantees(_mood(fresh)) == ()


_SEGMENTS = 3
_MANY = 40


def _chance(chain: MemoizedResponse, history: tuple[int, ...], reports: tuple[int, ...]) -> Fraction:
    """Of _MANY equal reports in each segment of a history, by listing the permanent answers to its values."""
    values = sorted(set(history))
    total = Fraction(0)
    for answers in product(range(chain.d), repeat=len(values)):
        permanent = dict(zip(values, answers, strict=True))
        chance = Fraction(1)
        for value, answer in permanent.items():
            chance *= chain.permanent_p if answer == value else chain.permanent_q
        for value, report in zip(history, reports, strict=True):
            chance *= (chain.second_p if permanent[value] == report else chain.second_q) ** _MANY
        total += chance
    return total


def test_the_bound_for_life_holds_between_histories_of_one_pattern_and_no_others() -> None:
    """Of 3 segments with many reports: with equal answers at equal times it is reached and kept, else broken."""
    chain = memoized("grr", 1.0, 3, 2.0)
    assert isinstance(chain, MemoizedResponse)
    outputs = list(product(range(3), repeat=_SEGMENTS))
    laws = {history: [_chance(chain, history, each) for each in outputs] for history in outputs}

    def worst(pattern: tuple[int, ...], other: tuple[int, ...]) -> float:
        def shape(history: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(history.index(value) for value in history)

        return max(
            math.log(max(first / second for first, second in zip(laws[one], laws[two], strict=True)))
            for one in outputs
            for two in outputs
            if shape(one) == pattern and shape(two) == other
        )

    for pattern in ((0, 0, 0), (0, 1, 1), (0, 1, 0), (0, 1, 2)):
        distinct = len(set(pattern))
        assert worst(pattern, pattern) <= distinct * 2.0
    assert worst((0, 1, 0), (0, 1, 0)) == pytest.approx(4.0, abs=1e-6)
    assert worst((0, 1, 2), (0, 1, 0)) > 3 * 2.0  # both change at the same times


def test_the_worst_day_holds_the_whole_charge_in_advance() -> None:
    """As the ledger books it: on the day of the first report."""
    assert registry_from_document(memo_document()).worst_case_per_day() == 6.0
