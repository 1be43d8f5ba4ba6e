"""Every part of the benchmarks, in the order of `make bench`."""

from collections.abc import Iterator
from typing import Any, Final

import counting
import ingest
import instructions
import peers
import query
import sdk
import store
from harness import Case, Row

SUITES: Final = {
    suite.__name__: suite.cases for suite in (sdk, peers, counting, store, ingest, query, instructions)
}


def cases(names: tuple[str, ...] = ()) -> Iterator[Case]:
    """Those of the named parts; of all where none is named."""
    for name, given in SUITES.items():
        if not names or name in names:
            yield from given()


def as_json(case: Case, row: Row) -> dict[str, Any]:
    """The row as it stands in results.json, with where it belongs and whether a later run is held against it."""
    return row.as_json() | {"suite": case.suite, "guarded": case.guarded and row.relative is not None}
