"""What a signal means while the demo starts, works and clears up."""

import os
import signal
from typing import Any

import pytest

from dither_cli.signals import Stopped, Stopping, handled
from support.asked import Asked


def test_a_signal_breaks_off_what_may_be_broken_off() -> None:
    """Inside it raises, once; what clears up afterwards is only hastened."""
    stopping, asked = Stopping(), Asked()
    service: Any = asked
    stopping.watch(service)
    with handled(stopping.on_signal):
        with pytest.raises(Stopped), stopping.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
    assert (stopping.number, asked.calls) == (signal.SIGTERM, ["hasten"])


def test_a_signal_at_the_start_is_the_service_s_to_heed() -> None:
    """Nothing is torn apart half made, and the work does not begin."""
    stopping, asked = Stopping(), Asked()
    service: Any = asked
    with handled(stopping.on_signal):
        os.kill(os.getpid(), signal.SIGHUP)
        assert asked.calls == []
        stopping.watch(service)
        assert asked.calls == ["stop"]
        with pytest.raises(Stopped), stopping.interruptible():
            pytest.fail("the work began")


def test_a_service_that_starts_is_asked_to_stop() -> None:
    """Between `watch` and the work."""
    stopping, asked = Stopping(), Asked()
    service: Any = asked
    stopping.watch(service)
    with handled(stopping.on_signal):
        os.kill(os.getpid(), signal.SIGINT)
    assert asked.calls == ["stop"]
