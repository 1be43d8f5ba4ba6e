"""Finding the entry that ends every worker that decodes it."""

import pytest

from dither_estimator.poison import MAX_TRIES, NOBODY, Attempt, Step, next_step


@pytest.mark.parametrize("attempt", [Attempt("5-0", 7, 2, "a/1"), Attempt("", 1, 0, NOBODY)])
def test_an_attempt_survives_the_store(attempt: Attempt) -> None:
    """Written and read back it is the same, the empty checkpoint of a new store included."""
    assert Attempt.parse(attempt.text) == attempt


@pytest.mark.parametrize("text", ["", "5-0", "5-0 1 1", "5-0 1 1 ", "5-0 x 1 a", "5-0 1 -1 a", "5-0 1 1 a a"])
def test_what_is_no_attempt_is_none(text: str) -> None:
    """Damage is not an error: it is as if nothing had been tried."""
    assert Attempt.parse(text) is None


def test_a_checkpoint_that_moved_on_begins_anew() -> None:
    """The last attempt ended well, so it says nothing about what follows."""
    assert next_step(None, "5-0") == Step()
    assert next_step(Attempt("4-0", 100, 3, NOBODY), "5-0") == Step()


def test_a_run_is_tried_three_times_then_halved_then_set_aside() -> None:
    """From eight entries to one, and that one is not decoded any more."""
    seen = []
    attempt = Attempt("5-0", 8, 1, NOBODY)
    while not (step := next_step(attempt, "5-0")).set_aside:
        assert step.most_entries is not None
        seen.append((step.most_entries, step.tries))
        attempt = Attempt("5-0", step.most_entries, step.tries + 1, NOBODY)
    expected = [(8, 1), (8, 2)]
    for size in (4, 2, 1):
        expected += [(size, tries) for tries in range(MAX_TRIES)]
    assert seen == expected
    assert step == Step(1, MAX_TRIES, set_aside=True)


def test_a_try_counts_only_where_its_owner_died() -> None:
    """Earlier deaths stay either way, and how far the run was halved."""
    attempt = Attempt("5-0", 4, 2, "a/1")
    assert attempt.settled(died=True) == Attempt("5-0", 4, 2, NOBODY)
    assert attempt.settled(died=False) == Attempt("5-0", 4, 1, NOBODY)
    assert Attempt("5-0", 4, 0, "a/1").settled(died=False) == Attempt("5-0", 4, 0, NOBODY)
