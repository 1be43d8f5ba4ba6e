"""The lot of a group of metrics: uniform, whatever is asked first and answered; and what is estimated from it."""

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from dither_client import Client
from dither_client.groups import drawn
from dither_client.state import State
from dither_estimator import count, estimate
from dither_protocol.registry import registry_from_document
from support.clients import NOON, make_client
from support.groups import MEMBERS, group_document
from support.statistics import FALSE_ALARM, SHIFT, follows_law, sample_size

DRAWS = sample_size(1 / len(MEMBERS))
UNIFORM = np.full(len(MEMBERS), 1 / len(MEMBERS))
DEVICES = 4_000


def _lots(total: int) -> NDArray[np.int64]:
    """How often each member is drawn, in so many windows of one device."""
    group, state, found = (
        registry_from_document(group_document()).groups["editor"],
        State(None),
        Counter[str](),
    )
    with state.transaction() as connection:
        for number in range(total):
            found[drawn(connection, group, group, str(number), NOON)] += 1
    state.close()
    return np.array([found[name] for name in MEMBERS])


def _off_by(share: float) -> NDArray[np.float64]:
    """The law that gives one member so much more than its part."""
    law = UNIFORM.copy()
    law[0] *= 1 + share
    law[1:] = (1 - law[0]) / (len(MEMBERS) - 1)
    return law


def test_the_lot_is_uniform_over_the_members() -> None:
    """Chi-square at one false alarm in a million; a law with 30 % more for one member is refused."""
    counts = _lots(DRAWS)
    assert follows_law(counts, UNIFORM)
    assert not follows_law(counts, _off_by(SHIFT))


def test_lots_of_windows_are_independent() -> None:
    """Pairs of windows in a row have every combination equally often."""
    group, state = registry_from_document(group_document()).groups["editor"], State(None)
    with state.transaction() as connection:
        lots = [drawn(connection, group, group, str(number), NOON) for number in range(DRAWS)]
    state.close()
    pairs = Counter(zip(lots[::2], lots[1::2], strict=True))
    counts = np.array([pairs[a, b] for a in MEMBERS for b in MEMBERS])
    assert follows_law(counts, np.full(counts.size, 1 / counts.size))
    assert not follows_law(counts, np.outer(_off_by(SHIFT), _off_by(SHIFT)).ravel())


def _devices(total: int, registry: object) -> Iterator[Client]:
    for _ in range(total):
        client = make_client(registry=registry)  # at noon of a fixed day; nothing leaves within a test
        yield client
        client.set_consent(False)
        client.shutdown(0.0)


@pytest.mark.parametrize("first", [MEMBERS[0], MEMBERS[2]])
def test_the_lot_depends_neither_on_the_answer_nor_on_who_is_asked_first(first: str) -> None:
    """Through `record`: the member that is asked first is drawn as often as any, with either answer (P9)."""
    registry = registry_from_document(group_document())
    devices = 900
    queued = Counter[bool]()
    for number, client in enumerate(_devices(2 * devices, registry)):
        value = bool(number % 2)
        queued[value] += str(client.record(first, value).status) == "queued"
    for value in (False, True):
        for chance, fits in ((1 / 3, True), (1 / 3 * 1.5, False)):
            tail = min(bdtr(queued[value], devices, chance), bdtrc(queued[value] - 1, devices, chance))
            assert (2 * tail >= FALSE_ALARM / 4) == fits


def test_the_estimate_of_a_member_is_unbiased() -> None:
    """A third of the devices report it, and their share of yes is that of all: the truth is within the limit.

    Devices whose answer decides whether they report would give another share: the same reports are refused for a
    truth that is off by 0.15.
    """
    registry = registry_from_document(group_document())
    metric, truth = registry.metric("tab_width"), 0.3
    reports = []
    for number, client in enumerate(_devices(DEVICES, registry)):
        value = (number * 7) % 10 < 10 * truth  # exactly that share of all devices
        for name in MEMBERS:
            client.record(name, value)
        pending = [json.loads(text) for text in client.pending().reports]
        reports += [each["data"] for each in pending if each["metric"] == metric.name]
    counters, n = count(metric.mechanism, reports)
    oracle = metric.mechanism
    chance = truth * oracle.p + (1 - truth) * oracle.q
    off = chance + 0.15 * oracle.gap
    yes = int(counters[1])
    assert 2 * min(bdtr(yes, n, chance), bdtrc(yes - 1, n, chance)) >= FALSE_ALARM
    assert 2 * min(bdtr(yes, n, off), bdtrc(yes - 1, n, off)) < FALSE_ALARM
    assert abs(float(estimate(oracle, counters, n).estimate[1]) - truth) < 0.15
    assert 2 * min(bdtr(n, DEVICES, 1 / 3), bdtrc(n - 1, DEVICES, 1 / 3)) >= FALSE_ALARM
