"""Flash crowds as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from dither_cli.simulate_output import seconds_text
from dither_harness.crowd_verdict import BUFFERS_MIB, MEMORY_LIMIT, ROOM
from dither_harness.machine import machine_text
from dither_harness.service_process import STORE
from dither_protocol.storage import DEFAULT_PARTITIONS


def log_text(document: Mapping[str, Any]) -> str:
    """The whole log."""
    capacity = document["capacity"]
    lines = [
        f"Flash crowd of {document['times']:g} times what dither serve takes",
        machine_text(),
        f"processors {document['service_cpus']} for the service, {document['load_cpus']} for the load",
        "",
        f"Capacity: {capacity['requests_per_s']:.0f} accepted requests/s over {capacity['connections']} connections, "
        f"by {capacity['by']}",
        *(_wrk_line(each) for each in document["wrk"]),
    ]
    for crowd in document["crowds"]:
        lines += ["", *_crowd_lines(crowd)]
    lines += ["", "PASS" if document["passed"] else "FAIL"]
    lines += [
        f"- {crowd['scenario']}: {problem}" for crowd in document["crowds"] for problem in crowd["problems"]
    ]
    return "\n".join(lines) + "\n"


def _wrk_line(found: Mapping[str, Any]) -> str:
    other = f", {found['not_accepted']} not accepted" if found["not_accepted"] else ", all accepted"
    return (
        f"wrk over {found['connections']} connections: {found['requests_per_s']:.0f} requests/s, p50 "
        f"{seconds_text(found['p50_s'])}, p99 {seconds_text(found['p99_s'])}{other}"
    )


def _crowd_lines(crowd: Mapping[str, Any]) -> list[str]:
    return [
        f"{crowd['scenario'].capitalize()}: {crowd['offered_per_s']:.0f} requests/s from second {crowd['comes_s']:g} "
        f"to {crowd['goes_s']:g}, over {crowd['connections']} connections",
        *_phase_lines(crowd["phases"]),
        *_load_lines(crowd),
        *_memory_lines(crowd["memory"]),
    ]


def _phase_lines(phases: Mapping[str, Any]) -> list[str]:
    head = f"{'phase':<9}{'seconds':>8}{'accepted/s':>12}{'503/s':>8}{'p50':>10}{'p99':>10}"
    lines = [head + f"{'wait for a connection p50':>28}{'p99':>10}"]
    for name, row in phases.items():
        latency, waited = row["latency_s"], row["waited_s"]
        lines.append(
            f"{name:<9}{row['seconds']:>8}{row['accepted']:>12.1f}{row['retry']:>8.1f}{seconds_text(latency['p50']):>10}"
            f"{seconds_text(latency['p99']):>10}{seconds_text(waited['p50']):>28}{seconds_text(waited['p99']):>10}"
        )
    return lines


def _load_lines(crowd: Mapping[str, Any]) -> list[str]:
    load = crowd["load"]
    retries, reports = load["retries"], load["reports"]
    sent, counted = (sum(line[term] for line in load["metrics"]) for term in ("sent", "counted"))
    taken = load["requests"] - sum(retries.values())
    mark = DEFAULT_PARTITIONS * (load["high_water_bytes"] or 0)
    no_room = " (no room: it measures itself as well)" if crowd["generator"] > ROOM else ""
    return [
        f"p99 of accepted requests below {crowd['p99_limit_s']:g} s, from the coming of the crowd to the last answer: "
        + ("met" if crowd["p99_met"] else "NOT MET"),
        f"answers: 202 {taken:,}, 503 {retries.get('http:503', 0):,}, others {_others(retries)}",
        f"reports: sent {sent:,}, accepted {reports['accepted']:,}, counted {counted:,}, "
        f"{load['counting_s']:.1f} s after the last answer",
        f"most backlog {crowd['most_backlog_bytes']:,} B; high-water mark {mark:,} B",
        f"load generator: {crowd['generator']:.0%} of its processors{no_room}",
    ]


def _memory_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"{'MiB resident':<17}{'before':>9}{'least':>9}{'most':>9}{'times':>8}"]
    for row in rows:
        if row["times"] is None:
            lines.append(f"{row['process']:<17}no sample before the crowd")
            continue
        judged = "bounded" if row["bounded"] else "NOT BOUNDED"
        lines.append(
            f"{row['process']:<17}{row['before_mib']:>9.2f}{row['least_mib']:>9.2f}{row['most_mib']:>9.2f}"
            f"{row['times']:>8.3f}  {'' if row['process'] == STORE else judged}".rstrip()
        )
    rule = f"Bounded: at most {MEMORY_LIMIT:g} times what it was before, or {BUFFERS_MIB} MiB more"
    return [*lines, f"{rule}; the store less ids and backlog, by its own account."]


def _others(retries: Mapping[str, int]) -> str:
    found = {reason: times for reason, times in retries.items() if reason != "http:503"}
    return "none" if not found else ", ".join(f"{reason} {times}" for reason, times in found.items())
