"""``dither audit``: does the installed SDK, or any program that prints reports, keep the epsilon that it declares?"""

import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import dither_client
from dither_cli import audit_memo
from dither_cli.audit_checks import audited_names
from dither_cli.audit_children import AuditError, Children
from dither_cli.audit_memo import MemoCase
from dither_cli.audit_output import Audit, Judged, document, show
from dither_cli.audit_plan import (
    CASES_SHARE,
    DOMAINS,
    EPSILONS,
    FALSE_ALARM,
    Case,
    choose,
    make_case,
)
from dither_cli.audit_program import draw_case, parse_command, repeats
from dither_cli.audit_sdk import MAX_REPORTS, draw_cases, sdk_checks
from dither_cli.exit_codes import SIGNAL_EXIT, ExitCode
from dither_cli.signals import Stopped, Stopping, handled
from dither_protocol import MECHANISMS, MechanismError

DEFAULT_SECONDS: Final = 45.0
MAX_EPSILON_AUDITED: Final = 5.0
"""Beyond it a report is hardly ever a lie, and no affordable number of reports tells one epsilon from another."""


@dataclass(frozen=True)
class _Job:
    """What is to be done."""

    names: Sequence[str]
    cases: Sequence[Case]
    memo: Sequence[MemoCase]
    alpha: float  # of each case
    seconds: float
    program: Sequence[str] | None
    timeout_s: float


@dataclass(frozen=True)
class _Asked:
    """The options, as they were given."""

    names: Sequence[str]
    epsilons: Sequence[float]
    domains: Sequence[int]
    seconds: float | None
    reports: int | None
    command: str | None
    timeout_s: float
    collections: Sequence[str]


@click.command()
@click.option(
    "--mechanism",
    "names",
    multiple=True,
    type=click.Choice(list(MECHANISMS)),
    help="Only this one; may be repeated.",
)
@click.option(
    "--epsilon", "epsilons", multiple=True, type=float, help="Declared epsilon; may be repeated.  [1, 2]"
)
@click.option("--d", "domains", multiple=True, type=int, help="Size of the domain; may be repeated.  [4, 64]")
@click.option(
    "--seconds", type=click.FloatRange(0), help="Go on drawing for so long; one round is always made.  [45]"
)
@click.option(
    "--reports", type=click.IntRange(100), help="So many reports of each case, however long it takes."
)
@click.option(
    "--command", "command", help="Audit this program in place of the SDK; with {value} and {count}."
)
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds that one process may take.",
)
@click.option(
    "--collection",
    "collections",
    multiple=True,
    type=click.Choice(["fresh", "memoized"]),
    help="Only metrics of this collection.  [both]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(
    *,
    names: tuple[str, ...],
    epsilons: tuple[float, ...],
    domains: tuple[int, ...],
    seconds: float | None,
    reports: int | None,
    command: str | None,
    timeout: float,
    collections: tuple[str, ...],
    as_json: bool,
) -> None:
    r"""Check from outside that reports keep the epsilon that they declare.

    Draws reports from the installed SDK through Client.record(), about two values by the toss of a coin, and guesses
    which it was. What share of the guesses is right proves a lower bound of the realised epsilon. Besides: do counts
    follow the p and q that estimates rest on; are retries, restarts and forks what they should be; can the noise be
    repeated?

    With --command, audits a program in any language. It is run for each value and a few thousand reports at a time,
    with {value} an index from 0 and {count} how many reports are wanted, and prints the data of one report per line, as
    JSON and as they stand on the wire. A report of bits may be the list of its values in the program's own order,
    which is then looked at too.

    \b
      dither audit
      dither audit --mechanism oue --epsilon 0.5 --seconds 100
      dither audit --command "python mine.py {value} {count}" --mechanism grr --epsilon 1 --d 16

    Exit codes: 0 nothing was found; 1 a promise is broken, or what is audited fails; 2 a bad option; 128 + n ended by
    signal n.
    """
    console = Console()
    stopping = Stopping()
    result = None
    try:
        job = _job(_Asked(names, epsilons, domains, seconds, reports, command, timeout, collections))
        with (
            handled(stopping.on_signal),
            tempfile.TemporaryDirectory(prefix="dither-audit-") as folder,
            stopping.interruptible(),
        ):
            result = _audit(job, Path(folder))
    except Stopped:
        number = stopping.number or signal.SIGINT
        click.echo(f"dither audit: stopped by {signal.Signals(number).name}", err=True)
        sys.exit(SIGNAL_EXIT + number)
    except (AuditError, MechanismError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(document(result), indent=1, allow_nan=False))
    else:
        show(result, console)
    sys.exit(ExitCode.OK if result.passed else ExitCode.FAILED)


def _job(asked: _Asked) -> _Job:
    """What is asked for, checked before anything runs."""
    if asked.seconds is not None and asked.reports is not None:
        raise click.UsageError("give --seconds or --reports, not both")
    if any(not epsilon <= MAX_EPSILON_AUDITED for epsilon in asked.epsilons):
        raise click.BadParameter(f"at most {MAX_EPSILON_AUDITED:g} can be audited", param_hint="--epsilon")
    program = None if asked.command is None else _program(asked, asked.command)
    names = audited_names(asked.names or list(MECHANISMS))
    try:
        made = choose(names, sorted(set(asked.epsilons or EPSILONS)), sorted(set(asked.domains or DOMAINS)))
    except MechanismError as error:
        raise click.UsageError(str(error)) from None
    with_fresh = "memoized" not in asked.collections or "fresh" in asked.collections
    with_memo = program is None and ("fresh" not in asked.collections or "memoized" in asked.collections)
    alpha = FALSE_ALARM * CASES_SHARE / (len(made) + 2 * len(audit_memo.NAMES))
    cases = [make_case(each, alpha, asked.reports) for each in made if with_fresh]
    memo = audit_memo.make_cases(names, alpha, asked.reports) if with_memo else []
    if not cases and not memo:
        raise click.UsageError("memoised collection takes " + ", ".join(audit_memo.NAMES))
    if (total := sum(case.goal for case in cases)) > MAX_REPORTS:
        raise click.UsageError(
            f"that takes {total:,} reports, and at most {MAX_REPORTS:,} are drawn; say --reports, which find less"
        )
    seconds = DEFAULT_SECONDS if asked.seconds is None else asked.seconds
    one_round = asked.reports is not None or program is not None
    return _Job(names, cases, memo, alpha, 0.0 if one_round else seconds, program, asked.timeout_s)


def _program(asked: _Asked, command: str) -> list[str]:
    if not len(asked.names) == len(asked.epsilons) == len(asked.domains) == 1:
        raise click.UsageError("--command goes with one --mechanism, one --epsilon and one --d")
    if asked.seconds is not None:
        raise click.UsageError("--seconds is for the SDK; with --command say --reports")
    try:
        return parse_command(command)
    except AuditError as error:
        raise click.BadParameter(str(error), param_hint="--command") from None


def _audit(job: _Job, folder: Path) -> Audit:
    began = time.monotonic()
    notes: list[str] = []
    with Children(folder, job.timeout_s) as children, _progress(job) as progress:
        if job.program is None:
            checks = sdk_checks(children, job.names, progress)
            if job.memo:
                checks.append(audit_memo.remembered(children, [memo.name for memo in job.memo]))
                audit_memo.draw_memoized(children, job.memo, progress)
            draw_cases(children, job.cases, job.seconds - (time.monotonic() - began), progress)
        else:
            (case,) = job.cases
            check = repeats(children, job.program, case)
            checks = [] if check is None else [check]
            if check is None:
                notes.append(
                    "reports hold so little noise that two equal runs would prove nothing: not checked"
                )
            draw_case(children, job.program, case, progress)
    cases = [*job.cases, *(case for memo in job.memo for case in (memo.one, memo.every))]
    judged = [Judged(case, case.verdict(job.alpha)) for case in cases]
    return Audit(_subject(job), judged, checks, notes, time.monotonic() - began)


def _subject(job: _Job) -> str:
    if job.program is not None:
        return f"the program {shlex.join(job.program)}"
    return f"the SDK in {Path(str(dither_client.__file__)).parent}"


@contextmanager
def _progress(job: _Job) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error; its end is what the speed so far promises for the time that there is."""
    console = Console(stderr=True)
    began = time.monotonic()
    goal = sum(case.goal for case in job.cases) + sum(
        memo.one.goal * audit_memo.AVERAGED for memo in job.memo
    )
    columns = (
        TextColumn("drawing reports"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=goal)
        done = 0

        def advance(reports: int) -> None:
            nonlocal done
            done += reports
            speed = done / max(0.1, time.monotonic() - began)
            bar.update(task, completed=done, total=max(goal, speed * job.seconds))

        yield advance
