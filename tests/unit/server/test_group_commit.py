"""Group commit: calls gather while one is under way, each gets its own result, nobody is left waiting."""

import threading

import pytest

from dither_server.group_commit import GroupCommit

HANG_LIMIT_S = 20


class _Gate:
    """A round trip that a test holds open, and that notes what went together."""

    def __init__(self):
        self.trips = []
        self.entered = threading.Semaphore(0)
        self.release = threading.Semaphore(0)

    def run(self, calls):
        self.trips.append(list(calls))
        self.entered.release()
        assert self.release.acquire(timeout=HANG_LIMIT_S)
        return [call * 10 for call in calls]


def _threads(commit, calls):
    found = {}

    def submit(call):
        try:
            found[call] = commit.submit(call)
        except BaseException as error:
            found[call] = error

    threads = [threading.Thread(target=submit, args=(call,), daemon=True) for call in calls]
    return found, threads


def _wait_for(commit, number):
    """Until so many calls have gathered."""
    pause = threading.Event()
    for _ in range(HANG_LIMIT_S * 1_000):
        if len(commit._waiting) == number:
            return
        pause.wait(0.001)
    raise AssertionError("the calls did not gather")


def test_a_lone_call_goes_at_once():
    """Without company a call does not wait for any."""
    commit = GroupCommit(lambda calls: [call + 1 for call in calls])
    assert [commit.submit(n) for n in range(3)] == [1, 2, 3]


def test_calls_gather_while_one_is_under_way():
    """What comes during a round trip goes together in the next, in order, at most so many at once."""
    gate = _Gate()
    commit = GroupCommit(gate.run, most=3)
    found, threads = _threads(commit, range(6))
    for place, thread in enumerate(threads):
        thread.start()
        if place == 0:
            assert gate.entered.acquire(timeout=HANG_LIMIT_S)
        else:
            _wait_for(commit, place)
    gate.release.release(3)
    for thread in threads:
        thread.join(HANG_LIMIT_S)
    assert gate.trips == [[0], [1, 2, 3], [4, 5]]
    assert found == {call: call * 10 for call in range(6)}


def test_one_call_may_fail_alone():
    """An exception in the place of a result concerns that call only."""
    commit = GroupCommit(lambda calls: [ValueError("this one") if call == 1 else call for call in calls])
    assert commit.submit(0) == 0
    with pytest.raises(ValueError, match="this one"):
        commit.submit(1)
    assert commit.submit(2) == 2


@pytest.mark.parametrize("kind", [ConnectionError, SystemExit])
def test_a_broken_round_trip_fails_all_of_its_calls_and_no_other(kind):
    """Whatever breaks a round trip is raised by each of its calls, and the next round trip goes on."""
    gate = _Gate()

    def run(calls):
        found = gate.run(calls)
        if 1 in calls:
            raise kind("gone")
        return found

    commit = GroupCommit(run)
    found, threads = _threads(commit, range(3))
    for place, thread in enumerate(threads):
        thread.start()
        if place == 0:
            assert gate.entered.acquire(timeout=HANG_LIMIT_S)
        else:
            _wait_for(commit, place)
    gate.release.release(3)
    for thread in threads:
        thread.join(HANG_LIMIT_S)
    assert found[0] == 0
    assert isinstance(found[1], kind)
    assert isinstance(found[2], kind)
    assert commit.submit(5) == 50


def test_many_threads_each_get_their_own_result():
    """Under contention no result is lost, doubled or swapped."""
    commit = GroupCommit(lambda calls: [call * 10 for call in calls])
    wrong = []

    def work(start):
        wrong.extend(n for n in range(start, start + 500) if commit.submit(n) != n * 10)

    threads = [threading.Thread(target=work, args=(start * 1_000,), daemon=True) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_LIMIT_S)
        assert not thread.is_alive()
    assert wrong == []
