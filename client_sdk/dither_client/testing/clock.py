"""A clock that a test sets."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Give it to ``Client(clock=...)``; it stands still until it is told to move.

    The sender's thread sleeps by real time: after moving the clock, call ``client.flush()``.

    Args:
        now: where it begins, an aware datetime; the first instant of 2026 by default.
    """

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if now.tzinfo is None:
            raise ValueError("a clock needs a time with its zone")
        self.now = now

    def __call__(self) -> datetime:
        """The time it shows."""
        return self.now

    def advance(self, **amount: float) -> None:
        """Move it, by the arguments of `timedelta`: ``advance(days=1)``; back with negative ones."""
        self.now += timedelta(**amount)
