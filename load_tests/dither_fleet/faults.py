"""What goes wrong on purpose, as shares of the devices or of their batches."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Self

from dither_protocol.errors import DitherError


class FaultsError(DitherError, ValueError):
    """A list of faults that is none; the message says why."""


@dataclass(frozen=True)
class Faults:
    """Shares in [0, 1]. Kinds of devices exclude each other, and so do the troubles of a batch.

    Attributes:
        cut: of batches: the first try breaks off in the middle of the request.
        swallow: of batches: the first request arrives, and nobody reads its answer.
        duplicate: of batches: sent once more after they were accepted.
        old: of devices: they have an older version of the registry, where the server has had one.
        early: of devices: their clock is so far ahead that their windows have not begun.
        late: of devices: their clock is so far behind that their windows are closed.
        bad_report: of batches: one report has data that its mechanism never makes.
        bad_body: of batches: the body is no JSON.
    """

    cut: float = 0.0
    swallow: float = 0.0
    duplicate: float = 0.0
    old: float = 0.0
    early: float = 0.0
    late: float = 0.0
    bad_report: float = 0.0
    bad_body: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= share <= 1 for share in asdict(self).values()):
            raise FaultsError("a share must be in [0, 1]")
        for together in (DEVICE_KINDS, BATCH_TROUBLES, BATCH_DAMAGES):
            if sum(getattr(self, name) for name in together) > 1:
                raise FaultsError("the shares of " + ", ".join(together) + " are more than 1 together")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Faults from ``none``, ``all``, or ``cut=0.01,old=0.05``; after ``all,`` shares of it can be replaced.

        Raises:
            FaultsError: an unknown name, or no share.
        """
        base = cls()
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, share = item.partition("=")
            name = name.strip().replace("-", "_")
            if not equals and name in ("none", "all"):
                base = cls() if name == "none" else cls(**ALL)
            elif name in ALL and equals:
                base = replace(base, **{name: _share(share)})
            else:
                raise FaultsError(f"'{item}' is not none, all, or NAME=SHARE with one of " + ", ".join(ALL))
        return base

    def __str__(self) -> str:
        given = [f"{field.name}={getattr(self, field.name):g}" for field in fields(self)]
        return ", ".join(item for item in given if not item.endswith("=0")) or "none"


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FaultsError(f"'{text}' is no share") from None


DEVICE_KINDS: Final = ("old", "early", "late")
BATCH_TROUBLES: Final = ("cut", "swallow", "duplicate")
BATCH_DAMAGES: Final = ("bad_report", "bad_body")

ALL: Final = {
    "cut": 0.02,
    "swallow": 0.02,
    "duplicate": 0.02,
    "old": 0.05,
    "early": 0.02,
    "late": 0.02,
    "bad_report": 0.01,
    "bad_body": 0.01,
}
"""What ``all`` means."""
