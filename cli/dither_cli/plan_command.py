"""``dither plan``: how exact an estimate will be, and how many devices it takes, before anybody has reported."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from dither_cli.charts import ChartError, check_file, error_chart
from dither_cli.files import read_registry
from dither_cli.tables import level_text, percent
from dither_estimator import EstimationError
from dither_estimator.plan import DETECTION_POWER, plan_document, std_error
from dither_protocol import Mechanism, MechanismError, RegistryError, mechanism
from dither_protocol.mechanisms import AUTO, candidates, memoized
from dither_protocol.registry import Registry
from dither_protocol.registry.guarantees import Guarantee, guarantees, in_words

DEFAULT_REPORTS: Final = (1_000, 10_000, 100_000, 1_000_000)
_CHART_POINTS: Final = tuple(round(10 ** (2 + step / 8)) for step in range(49))  # 100 to 100 million


@dataclass(frozen=True)
class Question:
    """One thing to plan: a metric of a registry, or numbers from the command line.

    Attributes:
        name: of the metric; empty without a registry.
        mechanism: its oracle.
        guarantees: of a memoised metric.
        group: epsilons of the metrics of which a device answers one per window, this one's included; or its alone.
    """

    name: str
    mechanism: Mechanism
    guarantees: tuple[Guarantee, ...] = ()
    group: tuple[float, ...] = ()


@click.command("plan")
@click.option("--epsilon", type=float, help="Privacy loss of one report.")
@click.option(
    "--epsilon-permanent", type=float, help="Of a memoised metric: privacy loss of a permanent answer."
)
@click.option("--values", type=int, help="Number of values in the domain.")
@click.option(
    "--one-of",
    type=click.IntRange(2),
    help="Number of metrics like this one, of which a device answers one per window.",
)
@click.option("--mechanism", "mechanism_name", default=AUTO, show_default=True, help="A mechanism by name.")
@click.option(
    "--registry", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Plan all its metrics."
)
@click.option(
    "--reports",
    "-n",
    type=click.IntRange(1),
    multiple=True,
    help="Number of reports, of one of several metrics of devices; may be repeated.",
)
@click.option("--margin", type=float, help="Half width of the interval to reach, such as 0.01 for one point.")
@click.option("--level", default=0.95, show_default=True, help="Confidence level.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the error against n: .png or .svg."
)
def plan_command(
    *,
    epsilon: float | None,
    epsilon_permanent: float | None,
    values: int | None,
    one_of: int | None,
    mechanism_name: str,
    registry: Path | None,
    reports: tuple[int, ...],
    margin: float | None,
    level: float,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Say beforehand what reports will tell.

    Give --epsilon and --values, or --registry for every metric in it. With --margin, say how many reports it
    takes. With --one-of, and for a group in the registry, say what is left where each device answers one of several
    metrics per window: it is charged once, and each metric gets fewer reports. Beside each figure stands
    what central differential privacy would give for the same epsilon, where a
    trusted server sees every answer.
    """
    try:
        if plot:
            check_file(plot)
        questions = _questions((epsilon, epsilon_permanent), (values, one_of), mechanism_name, registry)
        answers = [_answer(question, reports or DEFAULT_REPORTS, margin, level) for question in questions]
        if plot:
            _plot(plot, questions)
    except (MechanismError, RegistryError, EstimationError, ChartError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(answers, indent=1, allow_nan=False))
        return
    console = Console()
    for answer in answers:
        _show(answer, console)


def _questions(
    epsilons: tuple[float | None, float | None],
    sizes: tuple[int | None, int | None],
    mechanism_name: str,
    registry: Path | None,
) -> list[Question]:
    (epsilon, permanent), (values, members) = epsilons, sizes
    if registry is not None:
        if any(each is not None for each in (epsilon, permanent, values, members)):
            raise click.UsageError("--registry has its own epsilon, values and groups")
        return _asked(read_registry(registry))
    if epsilon is None or values is None:
        raise click.UsageError("give --epsilon and --values, or --registry")
    if permanent is not None:
        if members is not None:
            raise click.UsageError("a memoised metric cannot be one of several")
        return [Question("", memoized(mechanism_name, epsilon, values, permanent))]
    return [Question("", mechanism(mechanism_name, epsilon, values), group=(epsilon,) * (members or 1))]


def _asked(registry: Registry) -> list[Question]:
    """All metrics of a registry."""
    groups = {name: tuple(each.epsilon for each in group) for name, group in registry.groups.items()}
    return [
        Question(metric.name, metric.mechanism, guarantees(metric), groups.get(metric.one_of or "", ()))
        for metric in registry
    ]


def _answer(
    question: Question, reports: tuple[int, ...], margin: float | None, level: float
) -> dict[str, Any]:
    answer = {"metric": question.name} | plan_document(
        question.mechanism, reports, margin, level, group=question.group
    )
    if question.guarantees:
        answer["guarantees"] = [each._asdict() for each in question.guarantees]
    return answer


def _show(answer: dict[str, Any], console: Console) -> None:
    name = f"{answer['metric']}: " if answer["metric"] else ""
    console.print(
        f"\n[bold]{name}{answer['mechanism']}[/bold], epsilon {answer['epsilon']:g}, {answer['values']:,} values: "
        f"{answer['report_bits']:,} bits a report, {answer['counters']:,} counters a cell",
        highlight=False,
    )
    table = Table(
        title=f"target {answer['target']}, {level_text(answer['level'])} intervals", title_justify="left"
    )
    for heading in (
        *(("devices",) if "one_of" in answer else ()),
        "reports",
        "true share",
        "std error",
        "interval",
        "central DP std error",
        "told from zero",
    ):
        table.add_column(heading, justify="right")
    for entry in answer["plans"]:
        for position, row in enumerate(entry["precision"]):
            table.add_row(
                *((f"{entry['devices']:,}" if position == 0 else "",) if "one_of" in answer else ()),
                f"{entry['n']:,}" if position == 0 else "",
                percent(row["share"]),
                percent(row["std_error"]),
                f"± {percent(row['half_width'])}",
                f"{100 * row['central_std_error']:.4f} %",
                _detectable(entry["detectable_share"]) if position == 0 else "",
            )
    console.print(table)
    console.print(
        f"told from zero: the least share that is marked present with probability {DETECTION_POWER:.0%}, "
        "where no absent value is marked with probability "
        f"{level_text(answer['level'])}",
        highlight=False,
    )
    for line in _group_lines(answer) + _memoized_lines(answer):
        console.print(line, highlight=False)
    for row in answer.get("reports_for_margin", []):
        console.print(
            f"an interval of ± {percent(answer['margin'])} at a share of {percent(row['share'])} takes "
            f"{row['reports']:,} reports{_of_devices(row)} (central DP: {row['central_reports']:,})",
            highlight=False,
        )


def _of_devices(row: dict[str, Any]) -> str:
    return f", and {row['devices']:,} devices" if "devices" in row else ""


def _group_lines(answer: dict[str, Any]) -> list[str]:
    """What one answer for several metrics saves and costs; nothing of a metric without a group."""
    if "one_of" not in answer:
        return []
    group = answer["one_of"]
    return [
        f"one of {group['members']}: in a window each device answers one of {group['members']} metrics, drawn by lot, "
        f"and is charged epsilon {group['epsilon_charged']:g} instead of {group['epsilon_otherwise']:g}; each metric "
        f"gets 1/{group['members']} of the reports, which makes its intervals about "
        f"{group['interval_factor']:.2f} times as wide"
    ]


def _memoized_lines(answer: dict[str, Any]) -> list[str]:
    """The floors and the guarantees of a memoised metric; nothing of a fresh one."""
    floors = answer.get("memoized", {}).get("floors", [])
    lines = [
        f"memoised: however often {floor['devices']:,} devices report, at a share of {percent(floor['share'])} the "
        f"standard error among them stays above {percent(floor['std_error'])}"
        for floor in floors
        if floor["share"] == 0
    ]
    return lines + [f"guaranteed, {in_words(Guarantee(**each))}" for each in answer.get("guarantees", [])]


def _detectable(share: float | None) -> str:
    return "none" if share is None else percent(share)


def _plot(path: Path, questions: list[Question]) -> None:
    if len(questions) > 1:
        lines = {
            question.name: [std_error(question.mechanism, n, 0.1) for n in _CHART_POINTS]
            for question in questions
        }
        error_chart(path, "standard error at a share of 10 %", _CHART_POINTS, lines)
        return
    chosen = questions[0].mechanism
    lines = {}
    for oracle in candidates(chosen.epsilon, chosen.d):
        mark = " (auto)" if oracle == mechanism(AUTO, chosen.epsilon, chosen.d) else ""
        lines[oracle.name + mark] = [std_error(oracle, n, 1 / chosen.d) for n in _CHART_POINTS]
    title = f"epsilon {chosen.epsilon:g}, {chosen.d:,} values, at a share of 1/{chosen.d:,}"
    error_chart(path, title, _CHART_POINTS, lines)
