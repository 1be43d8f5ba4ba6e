"""Count lines, words and bytes of a text, and report by Dither how the program is used, where the person agrees.

A run lives for some milliseconds. What it answers is written to the state directory together with its privacy
charge; whichever run comes after the report's random time sends it. Nobody waits for a server.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import dither_client

REGISTRY = Path(__file__).with_name("registry.toml")
ENDPOINT = os.environ.get("WORDCOUNT_TELEMETRY_URL", "https://telemetry.example.org")
INGEST_KEY = os.environ.get("WORDCOUNT_TELEMETRY_KEY", "dik_wordcount")  # names the program, not the person

SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
SIZES = ((0, "empty"), (1_000, "under 1 kB"), (100_000, "under 100 kB"), (10_000_000, "under 10 MB"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; the exit code."""
    options = _parser().parse_args(arguments)
    # consent=False: until the person says yes, nothing is recorded and nothing is sent.
    telemetry = dither_client.init(ENDPOINT, REGISTRY, ingest_key=INGEST_KEY, consent=False)
    if options.telemetry:
        return _telemetry(telemetry, options.telemetry)
    try:
        text = sys.stdin.buffer.read() if options.file is None else options.file.read_bytes()
    except OSError as error:
        print(f"wordcount: {error}", file=sys.stderr)
        return 1
    counts = {"lines": text.count(b"\n"), "words": len(text.split()), "bytes": len(text)}
    print(json.dumps(counts) if options.json else "  ".join(f"{n} {name}" for name, n in counts.items()))
    _report(options, len(text))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wordcount", description="Count lines, words and bytes of a text.")
    parser.add_argument("file", type=Path, nargs="?", help="the text; standard input without it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--telemetry",
        choices=("ask", "yes", "no", "show"),
        help="decide whether this program may report how it is used, or show what it would report",
    )
    return parser


def _report(options: argparse.Namespace, size: int) -> None:
    """Three answers, randomised before they are even written down."""
    system = SYSTEMS.get(sys.platform, "other")
    dither_client.record("output_format", "json" if options.json else "text", {"os": system})
    dither_client.record("input_size", next((name for limit, name in SIZES if size <= limit), "larger"))
    dither_client.record("from_stdin", options.file is None)


def _telemetry(telemetry: dither_client.Client, wish: str) -> int:
    """The person's say: be asked, decide, or look."""
    if wish == "show":
        return _show(telemetry)
    if wish == "ask":
        print(
            "wordcount would like to report how it is used. Every answer is changed at random on this device"
        )
        print("before it leaves; --telemetry show has the details. May it? [y/N] ", end="", flush=True)
        wish = "yes" if sys.stdin.readline().strip().lower() in ("y", "yes") else "no"
    try:
        telemetry.set_consent(wish == "yes")
    except dither_client.StateError as error:
        print(f"wordcount: {error}", file=sys.stderr)
        return 1
    print("Thank you." if wish == "yes" else "Nothing is reported.")
    return 0


def _show(telemetry: dither_client.Client) -> int:
    for metric in ("output_format", "input_size", "from_stdin"):
        print(telemetry.explain(metric), end="\n\n")
    try:
        pending, spent = telemetry.pending(), telemetry.privacy_ledger()
    except dither_client.StateError as error:
        print(f"wordcount: {error}", file=sys.stderr)
        return 1
    print(f"Privacy spent so far: epsilon {spent.spent_lifetime:g}. Waiting to leave this device:")
    for line in [body.decode() for body in pending.batches] + pending.reports:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
