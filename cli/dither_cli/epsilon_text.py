"""Epsilons as people read them."""

from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

ENDLESS: Final = "no end"

_SUM: Final = Context(prec=10, rounding=ROUND_CEILING)
_BOUND: Final = Context(prec=4, rounding=ROUND_CEILING)


def epsilon_text(epsilon: float | None) -> str:
    """A sum of epsilons in as few digits as it needs, thousands parted; `ENDLESS` for None."""
    return ENDLESS if epsilon is None else _text(epsilon, _SUM)


def bound_text(epsilon: float) -> str:
    """A computed bound in four digits, rounded up: what is shown still holds."""
    return _text(epsilon, _BOUND)


def _text(epsilon: float, context: Context) -> str:
    rounded = context.create_decimal(Decimal(repr(epsilon)))
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
