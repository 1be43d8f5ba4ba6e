"""``python -m dither_client``: what an app's SDK keeps on this device, and the person's say in it."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from dither_client import consent, ledger, outbox, spending
from dither_client.errors import StateError
from dither_client.explain import explain
from dither_client.paths import default_state_dir
from dither_client.registry_source import in_use
from dither_client.state import State
from dither_protocol.registry.guarantees import in_words

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        folder = _folder(options.state_dir)
    except ValueError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    state = State(folder)
    try:
        return _COMMANDS[options.command](state, options)
    except StateError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    finally:
        state.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dither_client", description="See and decide what an app reports from this device."
    )
    parser.add_argument(
        "--state-dir", type=Path, help="the app's state directory; by default the only one there is"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (
        ("status", "decision, queue and spending in short"),
        ("ledger", "the privacy spent, per metric and window"),
        ("pending", "exactly what is going to leave the device"),
        ("off", "agree to nothing: erase the queue and what is memoised, send nothing more"),
        ("on", "agree again"),
        ("forget", "erase the queue; the ledger stays"),
    ):
        commands.add_parser(name, help=words)
    commands.add_parser("explain", help="one metric in plain words").add_argument("metric", nargs="?")
    return parser


def _folder(given: Path | None) -> Path:
    """The state directory that is meant.

    Raises:
        ValueError: it does not exist, or there are several to choose from.
    """
    if given is not None:
        if not (given / "dither.sqlite3").is_file():
            raise ValueError(f"{given} is not a state directory")
        return given
    base = default_state_dir("project").parent
    found = sorted(path.parent for path in base.glob("*/dither.sqlite3"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"no app keeps a state below {base}; name one with --state-dir")
    raise ValueError("several apps keep a state; name one with --state-dir: " + ", ".join(map(str, found)))


def _status(state: State, _: argparse.Namespace) -> int:
    with state.transaction() as connection:
        decision = consent.decided(connection)
        batches, reports = outbox.contents(connection)
        spent = ledger.spent(connection) / ledger.NANO
        registry = in_use(connection)
    print(f"project   {registry.project if registry else 'unknown'}")
    print(f"decision  {'none, the app decides' if decision is None else 'yes' if decision else 'no'}")
    print(f"queue     {len(batches)} batches, {len(reports)} reports not in one yet")
    print(f"spent     epsilon {spent:g} for life")
    return EXIT_OK


def _ledger(state: State, _: argparse.Namespace) -> int:
    with state.transaction() as connection:
        registry = in_use(connection)
        limits = ledger.limits_of(registry.privacy if registry else None, None, None)
        summary = spending.summary(connection, datetime.now(UTC).date(), limits, registry)
    print(f"today     epsilon {summary.spent_today:g}{_left(summary.left_today)}")
    print(f"for life  epsilon {summary.spent_lifetime:g}{_left(summary.left_lifetime)}")
    for each in summary.filters:
        print(
            f"with delta {each.delta:g}: epsilon {each.spent:g} of {each.limit:g} for life, by a Renyi filter; "
            "the app may have stricter limits"
        )
    for metric in summary.metrics.values():
        print(f"{metric.metric}: epsilon {metric.epsilon:g} in {metric.reports} reports")
        for window, epsilon in metric.windows.items():
            print(f"  {window}  {epsilon:g}")
        for found in metric.guarantees:
            print(f"  {in_words(found)}")
    return EXIT_OK


def _left(amount: float | None) -> str:
    return "" if amount is None else f", {amount:g} left by the registry's limit"


def _pending(state: State, _: argparse.Namespace) -> int:
    with state.transaction() as connection:
        batches, reports = outbox.contents(connection)
    for body in batches:
        print(body.decode("utf-8"))
    for report in reports:
        print(json.dumps({"not in a batch yet": json.loads(report)}))
    return EXIT_OK


def _explain(state: State, options: argparse.Namespace) -> int:
    with state.transaction() as connection:
        registry = in_use(connection)
    if registry is None:
        print("the app has not run yet", file=sys.stderr)
        return EXIT_FAILED
    if options.metric and options.metric not in registry.metrics:
        print("no metric of this name; there are: " + ", ".join(registry.metrics), file=sys.stderr)
        return EXIT_FAILED
    wanted = [registry.metric(options.metric)] if options.metric else list(registry)
    print("\n\n".join(f"{metric.name}\n{explain(metric, registry)}" for metric in wanted))
    return EXIT_OK


def _decide(agrees: bool) -> Callable[[State, argparse.Namespace], int]:
    def decide(state: State, _: argparse.Namespace) -> int:
        erased = consent.decide_patiently(state, agrees)
        print("yes: the app may report" if agrees else f"no: nothing more is sent, {erased} reports erased")
        return EXIT_OK

    return decide


def _forget(state: State, _: argparse.Namespace) -> int:
    with state.transaction(durable=True) as connection:
        erased = outbox.erase(connection)
    consent.drop_traces_patiently(state)
    print(f"{erased} reports erased; the ledger stays")
    return EXIT_OK


_COMMANDS: dict[str, Callable[[State, argparse.Namespace], int]] = {
    "status": _status,
    "ledger": _ledger,
    "pending": _pending,
    "explain": _explain,
    "off": _decide(agrees=False),
    "on": _decide(agrees=True),
    "forget": _forget,
}

if __name__ == "__main__":
    sys.exit(main())
