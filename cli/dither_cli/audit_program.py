"""Drawing reports from any program that prints them, one JSON datum per line."""

import json
import math
import shlex
import string
from collections.abc import Callable, Sequence
from typing import Any, Final

from dither_cli.audit_checks import Check
from dither_cli.audit_children import AuditError, Children
from dither_cli.audit_plan import Case, fair_coins
from dither_protocol import Mechanism

RUN_REPORTS: Final = 5_000
"""So many reports are asked of one run at most."""

_FIELDS: Final = frozenset({"value", "count"})
_COINCIDENCE: Final = 1e-12
_DIFFERENT_RUNS: Final = "two runs at once print different reports"


def parse_command(text: str) -> list[str]:
    """A command line with {value} and {count} as a list of words.

    Raises:
        AuditError: it is empty, has other fields, lacks one, or has an open quotation.
    """
    try:
        words = shlex.split(text)
        named = {
            name for word in words for _, name, _, _ in string.Formatter().parse(word) if name is not None
        }
    except ValueError as error:
        raise AuditError(f"the command cannot be read: {error}") from None
    if named != _FIELDS:
        raise AuditError("the command must have the fields {value} and {count}, and no others")
    return words


def run(children: Children, words: Sequence[str], value: int, reports: int) -> list[Any]:
    """Have the program print so many reports about a value.

    Raises:
        AuditError: it fails, hangs, or prints something else.
    """
    lines = children.lines([word.format(value=value, count=reports) for word in words])
    if len(lines) != reports:
        raise AuditError(f"the program was asked for {reports:,} reports and printed {len(lines):,} lines")
    try:
        return [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise AuditError("the program printed a line that is not JSON") from None


def draw_case(children: Children, words: Sequence[str], case: Case, progress: Callable[[int], None]) -> None:
    """Draw the goal of the case. Coins are tossed first, then the program is run for each value."""
    coins = fair_coins(case.goal)
    data: list[Any] = [None] * case.goal
    for value, mine in zip(case.pair, (coins, ~coins), strict=True):
        places = mine.nonzero()[0]
        for start in range(0, len(places), RUN_REPORTS):
            some = places[start : start + RUN_REPORTS]
            for place, datum in zip(some, run(children, words, value, len(some)), strict=True):
                data[place] = datum
            progress(len(some))
    case.data, case.coins = data, [coins]


def repeats(children: Children, words: Sequence[str], case: Case) -> Check | None:
    """Start the program twice at once with the same arguments: it must not print the same reports.

    Returns:
        None where reports of the mechanism hold so little noise that two runs may well be the same.
    """
    reports = _enough(case.mechanism)
    if reports is None:
        return None
    with children.pool(2) as pool:
        runs = [pool.submit(run, children, words, case.pair[0], reports) for _ in range(2)]
        first, second = (future.result() for future in runs)
    same = first == second
    return Check(
        _DIFFERENT_RUNS, 2 * reports, ["a second run repeats the noise of the first"] if same else []
    )


def _enough(made: Mechanism) -> int | None:
    """How many reports are the same in two runs by chance with a probability below _COINCIDENCE."""
    alike = made.p**2 + (1 - made.p) ** 2  # as far as supporting the held value goes
    reports = math.ceil(math.log(_COINCIDENCE) / math.log(alike)) if alike < 1 else RUN_REPORTS + 1
    return reports if reports <= RUN_REPORTS else None
