"""How patient the supervisor is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """All in seconds.

    Attributes:
        tick_s: how often children are looked at.
        first_backoff_s: pause before the first restart; it doubles with each further failure.
        max_backoff_s: longest pause.
        healthy_s: a child that has run this long is forgiven its earlier failures.
        quick_s: a child that ended sooner than this after its start ended "quickly".
        progress_s: how often waiting is reported while a child starts.
        hastened_s: the longest wait for a child to stop once the user has lost patience.
    """

    tick_s: float = 0.1
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    healthy_s: float = 60.0
    quick_s: float = 10.0
    progress_s: float = 5.0
    hastened_s: float = 1.0

    def backoff_s(self, failures: int) -> float:
        """Pause after this many failures in a row (1 or more)."""
        return float(min(self.first_backoff_s * 2 ** min(failures - 1, 16), self.max_backoff_s))
