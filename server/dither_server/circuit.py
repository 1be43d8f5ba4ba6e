"""Fails fast while something does not answer. Pure: the clock is given.

Each call that waits for a silent store waits out its own time limit, and calls that queue behind one another add
theirs up. So after one call without an answer the next ones are turned away at once; when the pause is over one call
goes ahead and finds out, and the others are turned away until it is back.
"""

import time
from collections.abc import Callable
from threading import Lock


class Circuit:
    """Decides which calls may go.

    Args:
        pause_s: how long calls are turned away after one without an answer, seconds.
        clock: monotonic time, seconds.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._lock = Lock()
        self._fault = ""
        self._closed_until = 0.0
        self._one_is_out = False

    def fault(self) -> str:
        """Why a call that came now would be turned away; empty where it might go."""
        with self._lock:
            return self._found()

    def enter(self) -> str:
        """Empty where a call may go: it has to `leave`. Else the fault for which it is turned away."""
        with self._lock:
            found = self._found()
            self._one_is_out |= bool(self._fault) and not found
            return found

    def _found(self) -> str:
        return self._fault if self._one_is_out or self._clock() < self._closed_until else ""

    def leave(self, fault: str = "") -> None:
        """A call is back.

        Args:
            fault: why it had no answer; empty where it had one, of whatever kind.
        """
        with self._lock:
            self._fault, self._one_is_out = fault, False
            self._closed_until = self._clock() + self._pause_s
