"""The registry of the benchmarks of the SDK: one metric of 128 values."""

from typing import Any, Final

DOCUMENT: Final[dict[str, Any]] = {
    "schema": 1,
    "project": "bench",
    "metrics": {
        "m": {
            "version": 1,
            "type": "categorical",
            "description": "d",
            "categories": [f"value {i}" for i in range(128)],
            "epsilon": 1.0,
            "mechanism": "oue",
            "period": "hour",
        }
    },
}
