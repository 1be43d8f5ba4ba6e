"""One difference between two registries, with its verdict."""

from enum import StrEnum
from typing import Any, NamedTuple


class Verdict(StrEnum):
    """How grave a difference is. Stable: scripts rely on these words."""

    COMPATIBLE = "compatible"
    NOTICE = "notice"
    BREAKING = "breaking"


class Difference(NamedTuple):
    """What has changed, how grave that is, and what to do instead.

    Attributes:
        metric: its name; empty where the registry as a whole is meant.
        key: what has changed, such as ``epsilon`` or ``privacy.delta``; ``metrics`` where a metric came or went.
        verdict: how grave it is.
        reason: why, in words.
        move: what to do instead, or besides; empty where nothing is to be done.
    """

    metric: str
    key: str
    verdict: Verdict
    reason: str
    move: str = ""

    @property
    def path(self) -> str:
        """Where it stands, as errors of the registry name it: ``metrics.dark_mode.epsilon``."""
        if not self.metric:
            return self.key
        return f"metrics.{self.metric}" + ("" if self.key == "metrics" else f".{self.key}")

    def document(self) -> dict[str, Any]:
        """The same in JSON's types."""
        return {
            "metric": self.metric or None,
            "key": self.key,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "move": self.move or None,
        }
