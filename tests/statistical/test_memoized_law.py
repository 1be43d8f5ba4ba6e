"""The law of memoised answers as the device draws them, and what averaging many reports of a device leaves."""

import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import bdtr

from dither_client import randomize
from dither_client.memo import permanent_digits
from dither_client.sampling.memoized import permanent_answer, second_round
from dither_estimator.estimation import estimate_of_support
from dither_estimator.longitudinal import std_error_floor, widened
from dither_protocol.mechanisms import Data, Memoized, memoized
from dither_protocol.mechanisms.forms import pack_bits
from dither_protocol.registry import registry_from_document
from support.memo import Law, floats, memo_document, permanent_law, report_law, second_law
from support.statistics import FALSE_ALARM, SHIFT, follows_law, mean_is, sample_size, shifted

CHAINS = [
    ("rr", 1.0, 2, 2.0, 1), ("grr", 0.5, 5, 1.0, 3), ("grr", 2.0, 3, 3.0, 0),
    ("sue", 0.2, 3, 0.5, 1), ("oue", 0.2, 3, 0.5, 2),
]  # fmt: skip


def _number(chain: Memoized, data: Data) -> int:
    """A report as the index of its law."""
    if isinstance(data, int):
        return data
    return int.from_bytes(pack_bits(data, chain.d), "little")


def _follows(draw: Callable[[], int], law: Law, wrong: Law) -> None:
    """Draws follow the law, not another one, and not one whose rarest outcome is 30 % more or less likely."""
    exact = floats(law)
    found = Counter(draw() for _ in range(sample_size(float(exact.min()), exact.size)))
    counts = np.array([found[outcome] for outcome in range(exact.size)])
    assert counts.sum() == found.total()
    assert follows_law(counts, exact)
    assert not follows_law(counts, floats(wrong))
    rarest = int(exact.argmin())
    for shift in (-SHIFT, SHIFT):
        moved = exact.copy()
        moved[rarest] = shifted(float(exact[rarest]), shift)
        others = np.arange(exact.size) != rarest
        moved[others] *= (1 - moved[rarest]) / exact[others].sum()
        assert not follows_law(counts, moved)


@pytest.mark.parametrize(("name", "epsilon", "d", "permanent", "held"), CHAINS)
def test_permanent_answers_of_many_devices_follow_their_law(
    name: str, epsilon: float, d: int, permanent: float, held: int
) -> None:
    """Over fresh secrets: the base oracle at epsilon_permanent, by the keyed function that the device uses."""
    document = memo_document(
        name,
        type="categorical" if name != "rr" else "boolean",
        categories=[f"c{i}" for i in range(d)] if name != "rr" else None,
        epsilon=epsilon,
        epsilon_permanent=permanent,
        max_distinct_values=1,
    )
    metric = registry_from_document(document).metric("mood")
    chain = memoized(name, epsilon, d, permanent)
    assert metric.mechanism == chain
    _follows(
        lambda: permanent_answer(chain, held, permanent_digits(os.urandom(32), metric, held)),
        permanent_law(chain, held),
        permanent_law(chain, (held + 1) % d),
    )


@pytest.mark.parametrize(("name", "epsilon", "d", "permanent", "held"), CHAINS)
def test_reports_over_one_answer_follow_the_second_round(
    name: str, epsilon: float, d: int, permanent: float, held: int
) -> None:
    """Fresh for each report, with the noise of the operating system."""
    chain = memoized(name, epsilon, d, permanent)
    _follows(
        lambda: _number(chain, second_round(chain, held)),
        second_law(chain, held),
        second_law(chain, (held + 1) % d),
    )


@pytest.mark.parametrize(("name", "epsilon", "d", "permanent", "held"), CHAINS)
def test_one_report_follows_the_law_of_the_chain(
    name: str, epsilon: float, d: int, permanent: float, held: int
) -> None:
    """That of the transition matrix, of which the declared epsilon is computed."""
    chain = memoized(name, epsilon, d, permanent)
    _follows(
        lambda: _number(chain, randomize(chain, held)),
        report_law(chain, held),
        report_law(chain, (held + 1) % d),
    )


# Averaging

REPORTS = 100
DEVICES = 800


@pytest.mark.parametrize("name", ["grr", "oue"])
def test_the_mean_of_a_devices_reports_keeps_the_noise_of_its_permanent_answer(name: str) -> None:
    """Variance F/100 + G for the 100 reports of a device, not (F + G)/100 as of independent ones."""
    chain, held = memoized(name, 1.0, 4, 2.0), 1
    means = []
    for _ in range(DEVICES):
        answer = permanent_answer(chain, held, os.urandom)
        reports = [_number(chain, second_round(chain, answer)) for _ in range(REPORTS)]
        supporting = [each == held if name == "grr" else each >> held & 1 for each in reports]
        means.append(sum(supporting) / REPORTS)
    squares = (np.array(means) - chain.p) ** 2
    p1, p2, q2 = (float(each) for each in (chain.permanent_p, chain.second_p, chain.second_q))
    fresh = p1 * p2 * (1 - p2) + (1 - p1) * q2 * (1 - q2)
    permanent = p1 * (1 - p1) * (p2 - q2) ** 2
    assert fresh + permanent == pytest.approx(chain.p * (1 - chain.p))
    assert mean_is(squares, permanent + fresh / REPORTS)
    assert not mean_is(squares, (permanent + fresh) / REPORTS)
    assert not mean_is(squares, permanent * (1 - SHIFT))


RUNS = 1_000
FLEET = 400
COVERAGE = 0.93


def _uniform(*shape: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from the operating system."""
    count = int(np.prod(shape))
    return (np.frombuffer(os.urandom(8 * count), dtype=np.uint64) / 2.0**64).reshape(shape)


def _supporters(chain: Memoized, holders: int) -> NDArray[np.int64]:
    """C_v of a fleet over 100 windows, in each of many runs: the law of its sum, device by device."""
    chance = np.full(FLEET, float(chain.permanent_q))
    chance[:holders] = float(chain.permanent_p)
    permanent = _uniform(RUNS, FLEET) < chance
    counts = np.arange(REPORTS)
    found = np.zeros(RUNS, dtype=np.int64)
    for answers, second in ((permanent, chain.second_p), (~permanent, chain.second_q)):
        steps = bdtr(counts, REPORTS, float(second))
        drawn = np.searchsorted(steps, _uniform(RUNS, FLEET), side="right")
        found += np.where(answers, drawn, 0).sum(axis=1)
    return found


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("name", "d"), [("grr", 4), ("sue", 16), ("oue", 16)])
def test_a_hundred_reports_of_each_device_have_a_floor_and_honest_intervals(
    name: str, d: int, share: float
) -> None:
    """The error does not fall below the floor; intervals cover 93 % at least; those of independent reports do not."""
    chain, holders, n = memoized(name, 1.0, d, 2.0), round(share * FLEET), FLEET * REPORTS
    supporters = _supporters(chain, holders)
    plain = estimate_of_support(chain, supporters, n, 0.95, "reporters", simultaneous=False)
    squares = (plain.estimate - share) ** 2
    floor = std_error_floor(chain, FLEET, share) ** 2
    assert floor > 10 * chain.n_variance(share) / n  # far above what independent reports would leave
    fresh = (chain.n_variance(share) - chain.n_floor(share)) / n
    assert mean_is(squares, floor + fresh)
    assert not mean_is(squares, chain.n_variance(share) / n)
    assert not mean_is(squares, (1 - SHIFT) * floor)

    def covered(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> float:
        return float(np.sum((lower <= share) & (share <= upper)))

    honest = widened(plain, chain, REPORTS)
    assert bdtr(covered(honest.lower, honest.upper), RUNS, COVERAGE) >= FALSE_ALARM
    assert bdtr(covered(plain.lower, plain.upper), RUNS, COVERAGE) < FALSE_ALARM
    assert honest.std_error.mean() == pytest.approx((floor + fresh) ** 0.5, rel=0.1)
