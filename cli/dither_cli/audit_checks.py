"""What must hold of the installed SDK beside the law of its reports: bytes that stay, noise that nobody can repeat."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dither_cli.audit_children import Children
from dither_cli.audit_device import metric_table
from dither_protocol import MECHANISMS

HOURS: Final = 64
"""So many reports of one metric are the same twice with a chance below 10^-12, at epsilon 1 and whatever the mechanism:
two reports agree in supporting the held value, or not, with probability p^2 + (1-p)^2 <= 0.63."""

_EPSILON: Final = 1.0
_D: Final = 16
_SHOWN: Final = 3
_FORK: Final = "fork: noise of its own, nothing twice"

Reports = Iterable[Mapping[str, Any]]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: what was checked.
        reports: how many reports it looked at.
        problems: what is broken; empty where it holds.
    """

    name: str
    reports: int
    problems: Sequence[str]

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return not self.problems


def metrics(names: Sequence[str]) -> dict[str, Any]:
    """One metric per mechanism, named after it."""
    return {name: metric_table(name, _EPSILON, 2 if name == "rr" else _D) for name in names}


def same_bytes(children: Children, names: Sequence[str]) -> Check:
    """Every try of a batch carries the same bytes, before and after a crash, and what was answered stays answered."""
    task = {"metrics": metrics(names), "hours": HOURS, "state_dir": str(children.folder / "retry")}
    before = children.device(task | {"task": "retry"})
    after = children.device(task | {"task": "restart"})
    asked = HOURS * len(names)
    problems = _refusals(before["refused"])
    if after["answered_again"]:
        problems.append(f"{after['answered_again']:,} answers were taken a second time after the restart")
    if after["left"]:
        problems.append(f"{after['left']:,} reports were not sent within a minute")
    problems += _changed_batches([*before["bodies"], *after["bodies"]])
    sent = [*_reports_of(before["bodies"]), *_reports_of(after["bodies"])]
    seen = _data_by_key([*before["shown"], *after["shown"], *sent])
    changed = [key for key, data in seen.items() if len(data) > 1]
    if changed:
        problems.append(
            f"{len(changed):,} of {len(seen):,} answers left in more than one version, such as {_named(changed)}"
        )
    lost = asked - len(_data_by_key(_reports_of(after["bodies"])))
    if lost > 0:
        problems.append(f"{lost:,} reports did not come through the restart")
    return Check("retry and restart: the same bytes", asked, problems)


def fork(children: Children, names: Sequence[str]) -> Check:
    """Forked children send nothing of their parent's, and draw noise of their own."""
    task = {"metrics": metrics(names), "hours": HOURS, "state_dir": str(children.folder / "fork")}
    said = children.device(task | {"task": "fork", "scratch": str(children.folder)})
    asked = 4 * HOURS * len(names)
    if None in said["children"]:
        return Check(_FORK, asked, ["a child ended without a result"])
    sides = [said["parent"], *said["children"]]
    problems = _refusals([refusal for side in sides for refusal in side["refused"]])
    seen = [_data_by_key(_reports_of(side["bodies"])) for side in sides]
    sent = [key for of_side in seen for key in of_side]
    twice = len(sent) - len(set(sent))
    if twice:
        problems.append(f"{twice:,} reports were sent by more than one process")
    if len(set(sent)) < asked:
        problems.append(f"{asked - len(set(sent)):,} reports were not sent")
    for name in names:
        parent, first, second = (
            _sequence(of_side, name, side)
            for of_side, side in zip(seen, ("parent", "first", "second"), strict=True)
        )
        if first and (first == second or parent in (first, second)):
            problems.append(f"{name}: processes forked from one draw the same noise")
    return Check(_FORK, asked, problems)


def unpredictable(children: Children, names: Sequence[str]) -> Check:
    """Two devices that start alike, with seeded generators and the clock held still, draw different noise."""
    task = {"task": "replay", "metrics": metrics(names), "hours": HOURS, "seed": 1}
    runs = [children.device(task, {"PYTHONHASHSEED": "0"}) for _ in range(2)]
    problems = _refusals(runs[0]["refused"]) + [
        f"{name}: two devices that start alike send the same reports"
        for name in names
        if runs[0]["data"].get(name) == runs[1]["data"].get(name)
    ]
    return Check("randomness: no seed repeats it", 2 * HOURS * len(names), problems)


def one_source(children: Children, names: Sequence[str]) -> Check:
    """The operating system's generator is asked for every report, and nothing else decides."""
    task = {"task": "replace", "metrics": metrics(names), "hours": HOURS}
    runs = [children.device(task | {"seed": seed}, {"PYTHONHASHSEED": str(seed)}) for seed in (1, 2)]
    problems = _refusals(runs[0]["refused"])
    if idle := max(run["idle"] for run in runs):
        problems.append(f"{idle:,} reports were made without asking the operating system for randomness")
    problems += [
        f"{name}: the noise comes from another source than the operating system"
        for name in names
        if runs[0]["data"].get(name) != runs[1]["data"].get(name)
    ]
    return Check("randomness: the operating system's alone", 2 * HOURS * len(names), problems)


CHECKS: Final[tuple[Callable[[Children, Sequence[str]], Check], ...]] = (
    same_bytes,
    fork,
    unpredictable,
    one_source,
)


def audited_names(chosen: Sequence[str]) -> list[str]:
    """The mechanisms to be checked, in the order of the table."""
    return [name for name in MECHANISMS if name in chosen]


def _refusals(said: Sequence[str]) -> list[str]:
    return [f"{len(said):,} answers were not taken ({said[0]})"] if said else []


def _reports_of(bodies: Iterable[str]) -> list[dict[str, Any]]:
    return [report for body in dict.fromkeys(bodies) for report in json.loads(body)["reports"]]


def _changed_batches(bodies: Iterable[str]) -> list[str]:
    versions: dict[str, set[str]] = defaultdict(set)
    for body in bodies:
        versions[json.loads(body)["batch"]].add(body)
    changed = sum(len(found) > 1 for found in versions.values())
    return [f"{changed:,} of {len(versions):,} batches changed between two tries"] if changed else []


def _data_by_key(reports: Reports) -> dict[Key, set[str]]:
    """The different data that were seen for each answer."""
    found: dict[Key, set[str]] = defaultdict(set)
    for report in reports:
        key = (report["metric"], report["dimensions"]["side"], report["window"])
        found[key].add(json.dumps(report["data"]))
    return dict(found)


def _sequence(seen: Mapping[Key, set[str]], metric: str, side: str) -> list[str]:
    """The data of one metric on one side of a fork, by hour."""
    keys = sorted(key for key in seen if key[:2] == (metric, side))
    return [min(seen[key]) for key in keys]


def _named(keys: Iterable[Key]) -> str:
    some = sorted(keys)[:_SHOWN]
    return ", ".join(f"{metric} {window}" for metric, _, window in some)
