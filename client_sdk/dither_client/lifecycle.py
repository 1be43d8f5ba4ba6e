"""Forks and the end of the interpreter: what has to happen in every client of the process.

The hooks are registered once and hold the clients weakly: a client that the app has dropped is collected.
Sending happens in the clients' threads only. At exit they are waited for, and no thread is started (Python 3.12
refuses to); one deadline holds for all of them together.
"""

import atexit
import os
import time
import weakref
from typing import Protocol

from dither_client import owners, state, transport


class Lively(Protocol):
    """What the hooks need of a client."""

    exit_timeout_s: float

    def renew_in_child(self) -> None:
        """Start anew in a forked child."""

    def finish_at_exit(self, timeout_s: float) -> None:
        """Wait for what is being delivered, at most so long."""


_clients: "weakref.WeakSet[Lively]" = weakref.WeakSet()
_registered = False


def watch(client: Lively) -> None:
    """Have the hooks look after this client while it lives."""
    global _registered  # noqa: PLW0603  hooks cannot be taken back, so they are set once for the process
    _clients.add(client)
    if _registered:
        return
    _registered = True
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        # Hooks run in reverse order. That of logging, which takes its lock, must come after ours, which waits for
        # threads that may want to log; and one that is registered while a fork is under way runs by half.
        import logging  # noqa: F401, PLC0415  the sender's requests loads it anyway

        os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def _before_fork() -> None:
    transport.wait_before_fork()
    state.lock_before_fork()


def _in_parent() -> None:
    state.unlock_in_parent()
    transport.go_on_in_parent()


def _in_child() -> None:
    transport.renew_in_child()
    state.renew_in_child()
    owners.forget_parents_tokens()
    for client in list(_clients):
        client.renew_in_child()


def _at_exit() -> None:
    clients = list(_clients)
    deadline = time.monotonic() + max((client.exit_timeout_s for client in clients), default=0.0)
    for client in clients:
        client.finish_at_exit(max(0.0, deadline - time.monotonic()))
