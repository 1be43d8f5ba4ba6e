"""A transport that keeps what it is given."""

import json
from typing import Any

from dither_client.transport import Delivered, Fetched, Outcome


class MemoryTransport:
    """Takes every batch, and remembers it; or answers with the outcomes it is given.

    Args:
        outcomes: what `send` answers, one after the other; the last one stays. Without any, a receipt.
        registry: the document that `fetch_registry` answers, or the text of an envelope; None for no answer.
    """

    def __init__(self, *outcomes: Outcome, registry: Any = None) -> None:
        self.bodies: list[bytes] = []
        self.outcomes = list(outcomes)
        self.registry = registry

    def send(self, body: bytes) -> Outcome:
        """Remember, and answer."""
        self.bodies.append(body)
        if not self.outcomes:
            return Delivered(len(json.loads(body)["reports"]), duplicate=False, rejected=0)
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def fetch_registry(self, etag: str, *, signed: bool = False) -> Fetched | None:
        """The registry it was given, in whichever form."""
        return None if self.registry is None else Fetched(self.registry, "memory")

    def close(self) -> None:
        """Nothing to close."""

    def after_fork(self) -> None:
        """What the parent has sent is the parent's."""
        self.bodies = []

    @property
    def batches(self) -> list[dict[str, Any]]:
        """Every batch that was sent, a resent one as often as it was."""
        return [json.loads(body) for body in self.bodies]

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The reports of all distinct batches."""
        return [report for body in dict.fromkeys(self.bodies) for report in json.loads(body)["reports"]]
