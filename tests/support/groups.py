"""A registry with a group of metrics of which a device answers one per window, and clients that are asked all of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from dither_client import Client
from support.clients import NOON, make_client

MEMBERS = ("editor_font", "line_length", "tab_width")
EPSILONS = dict(zip(MEMBERS, (0.5, 1.0, 2.0), strict=True))


def group_document(
    period: str = "day", privacy: dict[str, float] | None = None, **changes: Any
) -> dict[str, Any]:
    """Three booleans of the group ``editor``, and one metric that every device answers.

    Args:
        period: of the group.
        privacy: the table of that name.
        changes: to every member.
    """
    metric = {
        "version": 1,
        "type": "boolean",
        "description": "A question",
        "mechanism": "rr",
        "min_reports": 1,
    }
    once = {"expires": "2099-12-31"} if period == "once" else {}
    members = {
        name: metric | once | {"epsilon": epsilon, "period": period, "one_of": "editor"} | changes
        for name, epsilon in EPSILONS.items()
    }
    return {
        "schema": 1,
        "project": "test-app",
        "privacy": privacy or {},
        "metrics": members | {"dark_mode": metric | {"epsilon": 1.0, "period": "day"}},
    }


def group_toml() -> str:
    """The same by the day, as a file."""
    document = group_document()
    tables = [
        f"[metrics.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in metric.items())
        for name, metric in document["metrics"].items()
    ]
    return "\n".join(['schema = 1\nproject = "test-app"', *tables])


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """The time."""
        return self.now


@contextmanager
def group_client(folder: Path | None, clock: Clock, **options: Any) -> Iterator[Client]:
    """A client of `group_document` that sends nothing."""
    client = make_client(
        **(
            {"registry": group_document(), "state_dir": folder, "clock": clock, "exit_timeout_s": 0.0}
            | options
        )
    )
    try:
        yield client
    finally:
        client.set_consent(False)  # nothing is tried at the end
        client.set_consent(True)
        client.shutdown(0.0)


def statuses(client: Client, *names: str, value: bool = True) -> dict[str, str]:
    """What becomes of an answer to each metric, in this order; of the group by default."""
    return {name: str(client.record(name, value).status) for name in names or MEMBERS}


def drawn(client: Client, value: bool = True) -> str:
    """Which member of the group this device answers now."""
    (name,) = (name for name, status in statuses(client, value=value).items() if status != "not_drawn")
    return name
