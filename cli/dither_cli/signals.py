"""The signals that ask a command to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from dither_cli.service import Service

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(on_signal: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP call ``on_signal``; the handlers from before come back afterwards."""
    # A SIGHUP that is ignored stays ignored: that is what nohup asks for.
    heeded = [s for s in _STOP_SIGNALS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stopped(BaseException):  # like KeyboardInterrupt: no "except Exception" on the way may keep it
    """A signal came while the work could be broken off."""


class Stopping:
    """What signals mean for a service that somebody works with.

    The first one asks the service to stop while it starts, breaks the work off inside `interruptible`, and is noted
    elsewhere, so that no step of starting or clearing up is cut in two. The second one takes away the patience.

    Attributes:
        number: the first signal that came; None while there was none.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._service: Service | None = None
        self._raises = False

    def watch(self, service: Service) -> None:
        """From now on signals are for this service, and one that has come already."""
        self._service = service
        if self.number is not None:
            service.request_stop()

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """For `handled`."""
        if self.number is not None:
            if self._service is not None:
                self._service.hasten()
            return
        self.number = number
        if self._raises:
            self._raises = False
            raise Stopped
        if self._service is not None:
            self._service.request_stop()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work that a signal breaks off with `Stopped`, the service still running."""
        self._raises = True
        try:
            if self.number is not None:
                raise Stopped
            yield
        finally:
            self._raises = False
