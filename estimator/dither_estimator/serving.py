"""What servers ask for beyond what is published. Pure: documents in, documents out.

The server's room computes no statistics and imports nothing of this one. It finds this module by its entry point in the
group ``dither.statistics``, where the extra ``estimator`` is installed beside it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dither_estimator.combination import combine
from dither_estimator.estimation import Estimates, estimate_of_support
from dither_estimator.longitudinal import widened
from dither_estimator.plan import plan_document
from dither_estimator.publication import Document, value_rows
from dither_protocol import MechanismError, mechanism
from dither_protocol.mechanisms import Memoized, memoized

__all__ = ["plan_document", "restate"]


def restate(document: Mapping[str, Any], level: float, *, simultaneous: bool) -> Document | None:
    """A published document with its intervals computed anew from the counts in it; `estimate` gives the same numbers.

    Args:
        document: as published. One without values (suppressed) only says the level.
        level: in (0, 1).
        simultaneous: whether the intervals cover all values at once; over several versions there are none such.

    Returns:
        None where it cannot be done: the document has no counts, since an earlier version published it, or is about
        a mechanism that has other p and q here, or about several versions where ``simultaneous`` is asked for.
    """
    changed = dict(document) | {"level": level, "simultaneous": simultaneous}
    rows = document["values"]
    if not rows:
        return changed
    labels = [row["value"] for row in rows]
    target = document["target"]
    if "parts" in document:
        parts = [
            _estimates(part, part.get("support"), target, level, simultaneous=False)
            for part in document["parts"]
        ]
        known = [part for part in parts if part is not None]
        if simultaneous or len(known) < len(parts):
            return None
        return changed | {"values": value_rows(labels, combine(known))}
    supporters = [row.get("support") for row in rows]
    result = _estimates(document, supporters, target, level, simultaneous=simultaneous)
    return None if result is None else changed | {"values": value_rows(labels, result)}


def _estimates(
    source: Mapping[str, Any], supporters: Any, target: Any, level: float, *, simultaneous: bool
) -> Estimates | None:
    if not supporters or None in supporters:
        return None
    chain = source.get("memoized")
    name, epsilon, d = source["mechanism"], source["epsilon"], len(supporters)
    try:
        oracle = (
            memoized(name, epsilon, d, chain["epsilon_permanent"]) if chain else mechanism(name, epsilon, d)
        )
    except MechanismError:
        return None
    if (oracle.p, oracle.q) != (source.get("p"), source.get("q")):
        return None
    counts = np.array(supporters, dtype=np.int64)
    plain = estimate_of_support(oracle, counts, source["n"], level, target, simultaneous=simultaneous)
    return widened(plain, oracle, chain["repeats"]) if isinstance(oracle, Memoized) and chain else plain
