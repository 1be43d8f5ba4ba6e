"""A simulation as numbers: one JSON document, which the terminal and the page are made of."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dither_cli.simulate_run import Result
from dither_fleet.latencies import Latencies, percentile_s
from dither_fleet.profiles import Schedule
from dither_fleet.tally import Tally
from dither_fleet.verdict import LEVEL, Judged

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
OUTCOMES: Final = ("accepted", "duplicate", "refused", "retry")

_MOST_POINTS: Final = 200


def simulation_document(result: Result) -> dict[str, Any]:
    """Everything that a report says, in seconds, bytes, reports and requests."""
    plan, tally, verdict = result.plan, result.tally, result.verdict
    return {
        "passed": verdict.passed,
        "problems": list(verdict.problems),
        "project": result.project,
        "server": result.url,
        "plan": {
            "devices": plan.devices,
            "days": plan.days,
            "profile": plan.profile,
            "crowd_times": plan.crowd_times if plan.profile == "flash-crowd" else None,
            "rate": plan.rate,
            "faults": str(plan.faults),
            "seed": plan.seed,
            "processes": plan.processes,
            "connections": plan.connections,
            "together": plan.together,
        },
        "devices": tally.devices,
        "devices_left_out": plan.devices * plan.days - tally.devices,
        "batches": sum(tally.made.values()),
        "requests": sum(tally.tries.values()),
        "reports": {
            "accepted": sum(tally.cells().values()),
            "rejected": dict(sorted(tally.rejections().items())),
            "duplicate": tally.duplicates,
        },
        "refused_batches": dict(sorted(tally.refusals().items())),
        "retries": dict(sorted(tally.retries.items())),
        "sending_s": round(result.sending_s, 3),
        "counting_s": round(result.counting_s, 3),
        "devices_per_s": round(tally.devices / result.sending_s, 1),
        "reports_per_s": round(sum(tally.cells().values()) / result.sending_s, 1),
        "latency_s": latency_document(tally.latencies),
        "waited_s": latency_document(tally.waits),
        "metrics": [vars(line) for line in verdict.lines],
        "coverage": {
            "level": LEVEL,
            "scopes": [vars(each) for each in verdict.coverage],
            "metrics": list(_coverage_by_metric(verdict.judged)),
            "left_out": verdict.left_out,
        },
        "errors": [_judged(each) for each in verdict.judged],
        "series": series(tally, result.plan.schedule),
        "backlog": [
            {"at_s": round(each.at_s, 2), "bytes": each.bytes, "waiting_s": each.waiting_s}
            for each in result.backlog
        ],
        "high_water_bytes": result.high_water_bytes,
    }


def latency_document(latencies: Latencies, seconds: Sequence[int] | None = None) -> dict[str, float | None]:
    """Percentiles of the requests that were answered 202, of some seconds or of all."""
    bins = latencies.all() if seconds is None else latencies.over(seconds)
    found = {name: percentile_s(bins, part) for name, part in PERCENTILES.items()}
    return {name: None if value is None else round(value, 6) for name, value in found.items()}


def series(tally: Tally, schedule: Schedule) -> list[dict[str, float | None]]:
    """Requests per second by outcome, latencies, and the requests that the profile brings, over time.

    At most 200 points; in each of them the mean of its seconds.
    """
    last = max((second for second, _ in tally.tries), default=-1)
    step = max(1, -(-(last + 1) // _MOST_POINTS))
    points = []
    for begin in range(0, last + 1, step):
        seconds = range(begin, min(begin + step, last + 1))
        rates = {
            word: round(sum(tally.tries[second, word] for second in seconds) / len(seconds), 2)
            for word in OUTCOMES
        }
        planned = None
        if schedule.rate is not None:
            requests = sum(tally.made.values()) / max(1, tally.devices)
            planned = round(schedule.rate_at(begin + len(seconds) / 2) * requests, 2)
        points.append(
            {"at_s": begin, "planned": planned} | rates | latency_document(tally.latencies, seconds)
        )
    return points


def _judged(each: Judged) -> dict[str, Any]:
    place = each.place
    return {
        "metric": place.metric,
        "version": place.version,
        "window": place.window,
        "dimensions": None if place.dimensions is None else dict(place.dimensions),
        "mechanism": each.mechanism,
        "epsilon": each.epsilon,
        "n": each.n,
        "error": each.error,
        "theory": each.theory,
        "intervals": each.intervals,
        "missed": each.missed,
    }


def _coverage_by_metric(judged: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """Intervals of each metric, all windows and scopes together, with the mean ratio of error to theory."""
    for name in dict.fromkeys(each.place.metric for each in judged):
        mine = [each for each in judged if each.place.metric == name]
        yield {
            "metric": name,
            "mechanism": mine[0].mechanism,
            "epsilon": mine[0].epsilon,
            "intervals": sum(each.intervals for each in mine),
            "missed": sum(each.missed for each in mine),
            "error_over_theory": sum(each.error / each.theory for each in mine) / len(mine),
        }
