"""What an operator is shown, held against what was counted."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from support.chaos.network import connect, exchange
from support.chaos.violations import Fault, Violation
from support.server import OPERATOR_KEY

_ANSWER_LIMIT_S: Final = 30.0
_PAGE: Final = 250  # windows

Outcome = tuple[str, str]
"""(metric, window)."""


async def _get(port: int, path: str) -> Any:
    """The document at a path; None where no answer comes, or a refusal."""
    connection = await connect(port)
    if connection is None:
        return None
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR_KEY}\r\n"
    head += "Connection: close\r\n\r\n"
    with suppress(TimeoutError):
        answer = await asyncio.wait_for(exchange(connection, head.encode()), _ANSWER_LIMIT_S)
        if answer is not None and answer[0] == 200:
            return answer[1]
    return None


async def ledger_violations(port: int) -> list[Violation]:
    """What the server's own ledger says is missing or too much, or that it cannot say."""
    ledger = await _get(port, "/v1/ledger")
    if ledger is not None and ledger["balanced"] and not ledger["unsettled"] and not ledger["unreadable"]:
        return []
    rows = [row for row in ledger["metrics"] if row["imbalance"]] if ledger is not None else "no answer"
    return [Violation(Fault.UNBALANCED, f"the server's own ledger: {json.dumps(rows)}")]


async def published_violations(port: int, counted: Mapping[Outcome, int]) -> list[Violation]:
    """Windows whose published n, over all dimensions, is not the number of reports that the cells hold."""
    found = []
    names = sorted({name for name, _ in counted})
    published = {name: await _published(port, name) for name in names}
    for (name, window), n in sorted(counted.items()):
        shown = published[name][window]
        if shown != n:
            found.append(Violation(Fault.UNPUBLISHED, f"{name} {window}: {shown} published, {n} counted"))
    return found


async def _published(port: int, name: str) -> Counter[str]:
    """N by window over all pages of the answer."""
    found: Counter[str] = Counter()
    cursor = ""
    while True:
        path = f"/v1/metrics/{name}/estimates?dimensions=*&limit={_PAGE}"
        document = await _get(port, path + (f"&cursor={cursor}" if cursor else ""))
        if document is None:
            return found
        for version in document["versions"]:
            found.update({each["window"]["label"]: each["n"] for each in version["estimates"]})
        cursor = document["next"]
        if cursor is None:
            return found
