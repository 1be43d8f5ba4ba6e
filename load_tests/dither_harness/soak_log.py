"""A soak as one document and as text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dither_cli.simulate_output import seconds_text
from dither_cli.simulate_series import latency_document, simulation_document
from dither_fleet.flatness import GROWTH_LIMIT
from dither_harness.machine import machine, machine_text
from dither_harness.soak_verdict import (
    BUFFERS_MIB,
    STORE_LESS_IDS,
    Soaked,
    problems,
    processes,
    rows,
    store_document,
)

_KEPT: Final = (
    "plan", "devices", "batches", "requests", "reports", "refused_batches", "retries", "sending_s", "counting_s",
    "devices_per_s", "reports_per_s", "latency_s", "waited_s", "metrics",
)  # fmt: skip
_SHORT: Final = {
    "serve": "serve",
    "server master": "master",
    "server worker 1": "worker 1",
    "server worker 2": "worker 2",
    "estimator": "estim.",
    "store": "store",
}


def soak_document(soaked: Soaked) -> dict[str, Any]:
    """Everything that a soak found; its rows as columns, to be short."""
    found = problems(soaked)
    load = simulation_document(soaked.result)
    table = rows(soaked)
    return {
        "passed": not found,
        "problems": found,
        "machine": machine(),
        "seconds": soaked.seconds,
        "warm_up_s": soaked.warm_up_s,
        "remembered": soaked.remembered,
        "exit_codes": list(soaked.exit_codes),
        "processes": processes(soaked),
        "store": store_document(soaked),
        "load": {name: load[name] for name in _KEPT} | {"coverage": load["coverage"]["scopes"]},
        "operator": {
            "answers": {str(status): times for status, times in sorted(soaked.looked.answers.items())},
            "latency_s": latency_document(soaked.looked.latencies),
        },
        "series": columns(table),
    }


def columns(table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows with equal keys as one list for each key; dictionaries in them likewise."""
    if not table:
        return {}
    found: dict[str, Any] = {}
    for name, value in table[0].items():
        cells = [row[name] for row in table]
        if isinstance(value, dict):
            keys = dict.fromkeys(key for cell in cells for key in cell)
            found[name] = {key: [cell.get(key) for cell in cells] for key in keys}
        else:
            found[name] = cells
    return found


def head_text(roles: Sequence[str]) -> str:
    """The head of the rows."""
    names = "".join(f"{_SHORT.get(role, role):>10}" for role in roles)
    return f"{'time':>6}{'req/s':>8}{'p50 ms':>8}{'p99 ms':>8}{'again/s':>8}{names}{'ids MiB':>9}{'backlog kB':>11}"


def row_text(row: Mapping[str, Any], roles: Sequence[str]) -> str:
    """One row; the processes in MiB of resident memory."""
    minutes, seconds = divmod(round(row["at_s"]), 60)
    sizes = "".join(f"{_number(row['rss_mib'].get(role), 10, 1)}" for role in roles)
    backlog = None if row["backlog_bytes"] is None else row["backlog_bytes"] / 1000
    return (
        f"{minutes:>3}:{seconds:02d}{row['requests_per_s']:>8.1f}{_number(row['p50_ms'], 8, 1)}"
        f"{_number(row['p99_ms'], 8, 1)}{row['retries_per_s']:>8.1f}{sizes}{_number(row['ids_mib'], 9, 2)}"
        f"{_number(backlog, 11, 1)}"
    )


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def log_text(document: Mapping[str, Any], table: Sequence[Mapping[str, Any]], every_s: float) -> str:
    """The whole log: what was done, a row every so often, each process, the verdict."""
    load, plan = document["load"], document["load"]["plan"]
    roles = list(dict.fromkeys(role for row in table for role in row["rss_mib"]))
    lines = [
        f"Soak of dither serve: {document['seconds'] / 60:g} minutes, {plan['rate']:g} devices/s; "
        f"the store began with {document['remembered']:,} ids of earlier batches",
        f"{machine_text()}; faults: {plan['faults']}",
        "",
        "Resident memory in MiB, by process:",
        head_text(roles),
        *(row_text(row, roles) for row in _thinned(table, every_s)),
        "",
        *_process_lines(document),
        "",
        *_store_lines(document["store"]),
        "",
        *_load_lines(load, document),
        "",
        "PASS" if document["passed"] else "FAIL",
        *(f"- {problem}" for problem in document["problems"]),
    ]
    return "\n".join(lines) + "\n"


def _thinned(table: Sequence[Mapping[str, Any]], every_s: float) -> list[Mapping[str, Any]]:
    due, found = every_s, []
    for row in table:
        if row["at_s"] >= due or row is table[-1]:
            found.append(row)
            due = row["at_s"] - row["at_s"] % every_s + every_s
    return found


def _process_lines(document: Mapping[str, Any]) -> list[str]:
    head = f"{'process':<17}{'first':>8}{'last':>8}{'growth':>8}{'MiB/h':>8}{'peak':>8}{'PSS':>8}{'USS':>8}"
    return [
        f"After a warm-up of {document['warm_up_s']:g} s: medians of the first and the last fifth, MiB",
        head + f"{'files':>9}{'threads':>9}{'CPU':>6}",
        *map(_process_line, document["processes"]),
        f"Flat: grew by at most {GROWTH_LIMIT:.0%}. All rows are resident memory as the system sees it, but the last: "
        f'"{STORE_LESS_IDS}"',
        "is what the store says that it uses for anything but ids of batches, to be remembered until their date "
        "is over, and backlog;",
        f"it is small, so it may also grow by {BUFFERS_MIB:g} MiB: windows that begin, some connections more.",
    ]


def _process_line(row: Mapping[str, Any]) -> str:
    if "flat" not in row:
        return f"{row['process']:<17}too few samples"
    line = f"{row['process']:<17}{row['first_mib']:>8.2f}{row['last_mib']:>8.2f}{row['growth']:>8.1%}"
    line += f"{row['mib_per_hour']:>8.1f}"
    if "peak_mib" in row:
        files, threads = ("-".join(map(str, dict.fromkeys(row[name]))) for name in ("descriptors", "threads"))
        line += f"{row['peak_mib']:>8.2f}{row['pss_mib']:>8.2f}{row['uss_mib']:>8.2f}{files:>9}{threads:>9}"
        line += f"{row['cpu']:>6.2f}"
    word = "flat" if row["flat"] else "NOT FLAT"
    return line + (f"  {word}" if row["judged"] else "")


def _store_lines(store: Mapping[str, Any]) -> list[str]:
    if not store:
        return ["The store did not answer."]

    def mib(name: str) -> str:
        return " -> ".join(f"{value / (1 << 20):.2f}" for value in store[name])

    return [
        f"Store, end of warm-up -> end: used {mib('used_bytes')} MiB, of it ids {mib('ids_bytes')} MiB, "
        f"the rest without backlog {mib('own_bytes')} MiB",
        f"ids {store['ids'][0]:,} -> {store['ids'][1]:,} of {store['bytes_per_id']} B each; "
        f"keys {store['keys'][0]:,} -> {store['keys'][1]:,}; most backlog {store['most_backlog_bytes']:,} B; "
        f"log file {mib('log_bytes')} MiB",
    ]


def _load_lines(load: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    reports = load["reports"]
    latency = load["latency_s"]
    asked = document["operator"]
    p50, p99 = (seconds_text(latency[name]) for name in ("p50", "p99"))
    own50, own99 = (seconds_text(asked["latency_s"][name]) for name in ("p50", "p99"))
    sent = sum(line["sent"] for line in load["metrics"])
    counted = sum(line["counted"] for line in load["metrics"])
    return [
        f"Load: {load['devices']:,} devices, {load['requests']:,} requests; p50 {p50}, p99 {p99} of those answered 202",
        f"reports: sent {sent:,}, accepted {reports['accepted']:,}, counted {counted:,}; "
        f"in batches known already {reports['duplicate']:,}; rejected {reports['rejected']}",
        f"batches refused: {load['refused_batches']}; tries repeated: {load['retries']}",
        f"counted {load['counting_s']:.1f} s after the last answer",
        f"operator: answers by status {asked['answers']}, p50 {own50}, p99 {own99}",
        f"dither serve ended with exit codes {document['exit_codes']}",
    ]
