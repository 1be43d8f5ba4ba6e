"""The public surface of the estimator."""

import dither_estimator


def test_the_public_names_are_pinned() -> None:
    """Adding or removing a name is a decision, and shows here."""
    assert sorted(dither_estimator.__all__) == [
        "Estimates",
        "EstimationError",
        "count",
        "count_packed",
        "estimate",
        "norm_sub",
        "support",
    ]


def test_every_public_name_is_there() -> None:
    """Each can be imported, and is the estimator's own."""
    for name in dither_estimator.__all__:
        assert getattr(dither_estimator, name).__module__.startswith("dither_estimator")
