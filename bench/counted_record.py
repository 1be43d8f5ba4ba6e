"""A program for `instructions.py`, called with N and FOLDER: N durable records at d = 128.

Each is in a window of its own; the state is in a new folder within FOLDER.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dither_client import Client, RecordStatus
from one_metric import DOCUMENT


def main() -> None:
    """Record, and end at once: what an exit does is no part of it."""
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    client = Client(
        "http://127.0.0.1:9",
        DOCUMENT,
        ingest_key="k",
        state_dir=Path(sys.argv[2]) / str(os.getpid()),
        delay_s=3600,
        clock=lambda: clock[0],
    )
    for _ in range(int(sys.argv[1])):
        clock[0] += timedelta(hours=1)
        said = client.record("m", "value 7")
        if said.status is not RecordStatus.QUEUED:
            sys.stderr.write(f"{said}\n")
            os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
