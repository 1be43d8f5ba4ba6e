"""A web app that creates its client when it is imported, which `gunicorn --preload` does before it forks."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from support.sdk_app import ask, make_client

client = make_client(delay_s=0.05, exit_timeout_s=10)
ask(client, 0)  # the master's own report, recorded before there is any worker


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Record the question whose number is the path; answer which process did it, and what came of it."""
    result = ask(client, int(environ["PATH_INFO"].strip("/")))
    time.sleep(0.01)  # so that the other workers get their share
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {result.status} {result.reason}".encode()]
