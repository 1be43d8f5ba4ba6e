"""Small registries for tests."""

from typing import Any

from dither_protocol.registry import Registry, registry_from_document

COLORS = ["red", "green", "blue", "violet", "orange"]


def small_document(**privacy: float) -> dict[str, Any]:
    """A boolean by rr, a categorical by oue with one dimension, and a `once` metric by grr."""
    return {
        "schema": 1,
        "project": "test-app",
        "privacy": privacy,
        "metrics": {
            "dark_mode": {
                "version": 1,
                "type": "boolean",
                "description": "Whether the dark theme is on",
                "epsilon": 1.0,
                "mechanism": "rr",
                "period": "day",
                "min_reports": 1,
            },
            "color": {
                "version": 2,
                "type": "categorical",
                "description": "Favourite colour",
                "categories": COLORS,
                "epsilon": 2.0,
                "mechanism": "oue",
                "period": "week",
                "dimensions": {"os": ["linux", "macos"]},
                "min_reports": 1,
            },
            "first_color": {
                "version": 1,
                "type": "categorical",
                "description": "First colour ever chosen",
                "categories": COLORS,
                "epsilon": 0.5,
                "mechanism": "grr",
                "period": "once",
                "expires": "2099-12-31",
                "min_reports": 1,
            },
        },
    }


def small_registry(**privacy: float) -> Registry:
    """`small_document` as a registry."""
    return registry_from_document(small_document(**privacy))
