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
from dither_protocol.registry.guarantees import Guarantee, guarantees, in_words

DEFAULT_REPORTS: Final = (1_000, 10_000, 100_000, 1_000_000)
_CHART_POINTS: Final = tuple(round(10 ** (2 + step / 8)) for step in range(49))  # 100 to 100 million


@dataclass(frozen=True)
class Question:
    """One thing to plan: a metric of a registry, or numbers from the command line."""

    name: str
    mechanism: Mechanism
    guarantees: tuple[Guarantee, ...] = ()


@click.command("plan")
@click.option("--epsilon", type=float, help="Privacy loss of one report.")
@click.option(
    "--epsilon-permanent", type=float, help="Of a memoised metric: privacy loss of a permanent answer."
)
@click.option("--values", type=int, help="Number of values in the domain.")
@click.option("--mechanism", "mechanism_name", default=AUTO, show_default=True, help="A mechanism by name.")
@click.option(
    "--registry", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Plan all its metrics."
)
@click.option(
    "--reports", "-n", type=click.IntRange(1), multiple=True, help="Number of reports; may be repeated."
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
    takes. Beside each figure stands what central differential privacy would give for the same epsilon, where a
    trusted server sees every answer.
    """
    try:
        if plot:
            check_file(plot)
        questions = _questions((epsilon, epsilon_permanent), values, mechanism_name, registry)
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
    values: int | None,
    mechanism_name: str,
    registry: Path | None,
) -> list[Question]:
    epsilon, permanent = epsilons
    if registry is not None:
        if any(each is not None for each in (epsilon, permanent, values)):
            raise click.UsageError("--registry has its own epsilon and values")
        return [
            Question(metric.name, metric.mechanism, guarantees(metric)) for metric in read_registry(registry)
        ]
    if epsilon is None or values is None:
        raise click.UsageError("give --epsilon and --values, or --registry")
    if permanent is not None:
        return [Question("", memoized(mechanism_name, epsilon, values, permanent))]
    return [Question("", mechanism(mechanism_name, epsilon, values))]


def _answer(
    question: Question, reports: tuple[int, ...], margin: float | None, level: float
) -> dict[str, Any]:
    answer = {"metric": question.name} | plan_document(question.mechanism, reports, margin, level)
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
    for line in _memoized_lines(answer):
        console.print(line, highlight=False)
    for row in answer.get("reports_for_margin", []):
        console.print(
            f"an interval of ± {percent(answer['margin'])} at a share of {percent(row['share'])} takes "
            f"{row['reports']:,} reports (central DP: {row['central_reports']:,})",
            highlight=False,
        )


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
