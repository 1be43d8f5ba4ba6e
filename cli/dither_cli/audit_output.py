"""What an audit says: a table of mechanisms, a list of checks, and what is broken; or the same as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from dither_cli.audit_checks import Check
from dither_cli.audit_plan import FALSE_ALARM, Case
from dither_cli.tables import fitting_table
from dither_estimator.audit_games import MISS
from dither_estimator.audit_laws import Deviation
from dither_estimator.audit_verdict import Verdict
from dither_protocol import Mechanism


@dataclass(frozen=True)
class Judged:
    """One case with its verdict, None where its reports could not be judged."""

    case: Case
    verdict: Verdict | None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with its reports."""
        return self.verdict is not None and self.verdict.passed and not self.case.trouble

    @property
    def problems(self) -> list[str]:
        """What is wrong, in sentences."""
        title = self.case.title
        found = [f"{title}: {trouble}" for trouble in dict.fromkeys(self.case.trouble)]
        if self.verdict is None:
            return found or [f"{title}: there are no reports"]
        for game, bound in self.verdict.broken:
            found.append(
                f"{title}: the reports prove an epsilon of {bound:.2f} or more (by {game.name}, "
                f"{game.right:,} of {game.decided:,} guesses were right)"
            )
        return found + [f"{title}: {_sentence(one)}" for one in self.verdict.deviations]


def _sentence(one: Deviation) -> str:
    return (
        f"{one.what}: {one.count:,} of {one.n:,}, where {one.expected:,.1f} are expected "
        f"(chance {one.p_value:.0e})"
    )


@dataclass(frozen=True)
class Audit:
    """All that an audit found.

    Attributes:
        subject: what was audited.
        judged: by mechanism.
        checks: of what must hold beside.
        notes: what could not be checked, and why.
        seconds: how long it took.
    """

    subject: str
    judged: Sequence[Judged]
    checks: Sequence[Check]
    notes: Sequence[str]
    seconds: float

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, in sentences."""
        found = [problem for one in self.judged for problem in one.problems]
        return found + [f"{check.name}: {problem}" for check in self.checks for problem in check.problems]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def reports(self) -> int:
        """How many reports were looked at."""
        return sum(len(one.case.data) for one in self.judged) + sum(check.reports for check in self.checks)

    @property
    def found_factor(self) -> float:
        """The multiple of the declared epsilon that would have been found, in every case."""
        verdicts = [one.verdict for one in self.judged if one.verdict is not None]
        return max((v.smallest_violation / v.mechanism.epsilon for v in verdicts), default=float("inf"))


def document(audit: Audit) -> dict[str, Any]:
    """The audit as JSON."""
    return {
        "subject": audit.subject,
        "passed": audit.passed,
        "problems": audit.problems,
        "notes": list(audit.notes),
        "confidence": 1 - FALSE_ALARM,
        "power": 1 - MISS,
        "found_factor": _finite(audit.found_factor),
        "reports": audit.reports,
        "seconds": round(audit.seconds, 1),
        "mechanisms": [_case_document(one) for one in audit.judged],
        "checks": [
            {
                "name": check.name,
                "reports": check.reports,
                "passed": check.passed,
                "problems": list(check.problems),
            }
            for check in audit.checks
        ],
    }


def _case_document(one: Judged) -> dict[str, Any]:
    verdict = one.verdict
    shown: dict[str, Any] = {
        **_declared(one.case.mechanism),
        "kind": one.case.kind or "fresh",
        "values_compared": list(one.case.pair),
        "reports": len(one.case.data),
        "passed": one.passed,
        "problems": one.problems,
    }
    if verdict is None:
        return shown
    return shown | {
        "epsilon_lower_bound": verdict.epsilon_bound,
        "margin": verdict.mechanism.epsilon - verdict.epsilon_bound,
        "smallest_violation": _finite(verdict.smallest_violation),
        "games": [asdict(game) | {"epsilon_lower_bound": bound} for game, bound in verdict.bounds],
        "deviations": [asdict(deviation) for deviation in verdict.deviations],
    }


def _declared(made: Mechanism) -> dict[str, Any]:
    return {"mechanism": made.name, "values": made.d, "epsilon": made.epsilon}


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if number < float("inf") else None


def show(audit: Audit, console: Console) -> None:
    """Print the audit."""
    console.print(Text(audit.subject, "bold"), highlight=False)
    rows = [_row(one) for one in audit.judged]
    optional = ("margin", "found from")
    console.print(fitting_table(rows, console, left=("verdict",), optional=optional), highlight=False)
    for check in audit.checks:
        verdict = Text("ok", "green") if check.passed else Text("BROKEN", "bold red")
        console.print(Text.assemble(verdict, f"  {check.name} ({check.reports:,} reports)"), highlight=False)
    for note in audit.notes:
        console.print(Text(note), highlight=False)
    for problem in audit.problems:
        console.print(Text(problem, "red"), highlight=False)
    console.print(_summary(audit), highlight=False)


def _row(one: Judged) -> dict[str, str | Text]:
    made, verdict = one.case.mechanism, one.verdict
    least = f"{verdict.epsilon_bound:.3f}" if verdict else "-"
    margin = f"{made.epsilon - verdict.epsilon_bound:+.3f}" if verdict else "-"
    return {
        "mechanism": one.case.name,
        "values": f"{made.d:,}",
        "epsilon": f"{made.epsilon:g}",
        "at least": least,
        "margin": margin,
        "found from": f"{verdict.smallest_violation:.2f}" if verdict else "-",
        "reports": f"{len(one.case.data):,}",
        "verdict": Text("ok", "green") if one.passed else Text("BROKEN", "bold red"),
    }


def _summary(audit: Audit) -> Text:
    took = f"{audit.reports:,} reports in {audit.seconds:.0f} s."
    refused = "What keeps its word is refused once in a million audits."
    if not audit.passed:
        return Text.assemble(("BROKEN", "bold red"), f": see above. {took} {refused}")
    return Text.assemble(
        ("PASS", "bold green"),
        f": no report tells more than declared. {took}\n"
        "at least: what the reports prove of the realised epsilon, with confidence 99.9999 % for all rows together. "
        f"{refused} found from: the realised epsilon that would have been found, but once in a million; "
        f"{_power(audit.found_factor)}.",
    )


def _power(factor: float) -> str:
    if factor == float("inf"):
        return "where it is inf, so few reports prove nothing"
    return f"in every row that is {factor:.2f} times the declared one or less"
