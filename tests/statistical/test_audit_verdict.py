"""The verdict of an audit: right reports are refused as rarely as it says, wrong ones are found."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import bdtrc

from dither_client import entropy, randomize
from dither_estimator.audit_games import reports_for
from dither_estimator.audit_verdict import ORDER, Sample, Verdict, judge
from dither_protocol import MECHANISMS, Mechanism, mechanism
from dither_protocol.hashing import bucket
from dither_protocol.mechanisms import Data, LocalHashing, SubsetSelection
from dither_protocol.mechanisms.forms import SEEDS
from support.statistics import FALSE_ALARM

ALPHA = 0.05
AUDITS = 60
FEW = 300
DOMAIN = {"rr": 2, "sue": 5, "oue": 5, "subset": 6}


def _coins(n: int) -> NDArray[np.bool_]:
    return np.array([entropy.below(2) == 1 for _ in range(n)])


def _sample(made: Mechanism, n: int, drawn: Mechanism | None = None) -> Sample:
    """Reports about values 0 and d-1; by another mechanism than the declared one where one is given."""
    pair, held = (0, made.d - 1), _coins(n)
    packed = b"".join(made.pack(randomize(drawn or made, pair[0] if first else pair[1])) for first in held)
    return Sample(made, pair, packed, held)


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_right_reports_are_refused_as_rarely_as_alpha_says(name: str) -> None:
    """60 audits at a chance of 5 % each: no more refusals than that explains, at one false alarm in a million."""
    made = mechanism(name, 1.0, DOMAIN.get(name, 7))
    refused = sum(not judge(_sample(made, FEW), ALPHA).passed for _ in range(AUDITS))
    assert bdtrc(refused - 1, AUDITS, ALPHA) > FALSE_ALARM


@pytest.mark.parametrize("name", ["rr", "grr", "sue", "oue", "blh", "hadamard"])
def test_the_planned_number_of_reports_finds_the_planned_violation(name: str) -> None:
    """Half as much again as declared is proved, and the declared one itself is not refused."""
    made = mechanism(name, 1.0, DOMAIN.get(name, 4))
    n = reports_for(made, 1.5, FALSE_ALARM / 6)
    loud = judge(_sample(made, n, mechanism(name, 1.5, made.d)), FALSE_ALARM)
    assert loud.broken
    assert "support" in {game.name for game, _ in loud.broken}
    right = judge(_sample(made, n), FALSE_ALARM)
    assert right.passed
    assert 0.5 < right.epsilon_bound <= 1 < right.smallest_violation <= 1.5


@pytest.mark.parametrize("name", ["rr", "grr", "sue", "oue", "blh", "hadamard"])
def test_too_much_noise_is_no_breach_and_still_no_law(name: str) -> None:
    """Reports of 0.7 epsilon prove less than declared; their counts are not those of p and q."""
    made = mechanism(name, 1.0, DOMAIN.get(name, 4))
    quiet = judge(_sample(made, 30_000, mechanism(name, 0.7, made.d)), FALSE_ALARM)
    assert not quiet.broken
    assert quiet.deviations


def _chosen_seed(made: LocalHashing, index: int) -> Data:
    """The bucket is randomised as it should, under a seed that mostly sends the value to bucket 0."""
    seed = entropy.below(SEEDS)
    for _ in range(8):
        if bucket(seed, index, made.g) == 0:
            break
        seed = entropy.below(SEEDS)
    true = bucket(seed, index, made.g)
    lie = entropy.below(made.total_weight) >= made.truth_weight
    return [seed, (true + lie * (1 + entropy.below(made.g - 1))) % made.g]


def test_a_seed_that_depends_on_the_value_is_learnt() -> None:
    """The support proves no more than declared; the buckets under the seed do."""
    made = mechanism("olh", 1.0, 4)
    assert isinstance(made, LocalHashing)
    held = _coins(8_000)
    packed = b"".join(made.pack(_chosen_seed(made, 0 if first else 3)) for first in held)
    assert {game.name for game, _ in judge(Sample(made, (0, 3), packed, held), FALSE_ALARM).broken} >= {
        "buckets under the seed"
    }


def _lists(made: SubsetSelection, held: NDArray[np.bool_], order: str) -> Verdict:
    """Subsets of the right law as lists: sorted, or with the truth first where it is in."""
    pair, lists, packed = (0, made.d - 1), [], []
    for first in held:
        truth = pair[0] if first else pair[1]
        data = randomize(made, truth)
        bits = int.from_bytes(made.pack(data), "little")
        items = [v for v in range(made.d) if bits >> v & 1]
        lists.append(sorted(items, key=lambda v: v != truth) if order == "truth first" else items)
        packed.append(made.pack(data))
    return judge(Sample(made, pair, b"".join(packed), held, lists), FALSE_ALARM)


def test_the_truth_first_in_a_list_is_learnt_and_nothing_in_a_sorted_one() -> None:
    """The set is the same; only where the order depends on the truth more than epsilon is proved."""
    made = mechanism("subset", 1.0, 16)
    assert isinstance(made, SubsetSelection)
    held = _coins(4_000)
    assert [game.name for game, _ in _lists(made, held, "truth first").broken] == [ORDER]
    assert _lists(made, held, "sorted").passed
