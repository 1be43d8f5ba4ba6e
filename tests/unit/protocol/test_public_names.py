import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import dither_protocol
from dither_protocol import DitherError, errors, mechanisms, registry

ROOT = Path(dither_protocol.__file__).parents[1]

PUBLIC = [
    "MECHANISMS",
    "AccountingError",
    "BatchError",
    "BatchProblem",
    "Bound",
    "DimensionError",
    "DitherError",
    "Mechanism",
    "MechanismError",
    "Metric",
    "MetricUsageError",
    "PrivacyBudgetManager",
    "PrivacyLoss",
    "Registry",
    "RegistryError",
    "Rejection",
    "RenyiFilter",
    "ReportError",
    "StorageError",
    "UnknownMetricError",
    "ValueDomainError",
    "ValueTypeError",
    "WindowError",
    "WireError",
    "load_registry",
    "mechanism",
    "parse_registry",
    "registry_from_document",
    "shuffled_epsilon",
]

SUBMODULES = sorted(
    module.name for module in pkgutil.walk_packages(dither_protocol.__path__, prefix="dither_protocol.")
)


def _isolated(code: str) -> object:
    """What a Python without site-packages prints as JSON, with this room alone on its path."""
    setup = f"import json, sys; sys.path.insert(0, {str(ROOT)!r}); "
    command = [sys.executable, "-I", "-S", "-c", setup + code]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_public_names_are_pinned() -> None:
    """The public names are these: taking one away breaks somebody, adding one is a promise."""
    assert dither_protocol.__all__ == PUBLIC


def test_every_name_can_be_imported() -> None:
    """Each public name is found, in the module that the package says it is from, and is listed."""
    for name in PUBLIC:
        home = importlib.import_module(dither_protocol._HOME_OF[name])
        assert getattr(dither_protocol, name) is getattr(home, name)
    assert set(dither_protocol._HOME_OF) == set(PUBLIC)
    assert dir(dither_protocol) == sorted(PUBLIC)


def test_unknown_name() -> None:
    """A name that does not exist is an AttributeError, so that hasattr and doctest work."""
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(dither_protocol, "nothing")  # noqa: B009  # mypy would refuse the attribute
    assert not hasattr(dither_protocol, "nothing")


@pytest.mark.parametrize("package", [mechanisms, registry])
def test_subpackages_export_what_they_list(package: object) -> None:
    """Every name in the `__all__` of a folder exists there."""
    for name in package.__all__:  # type: ignore[attr-defined]
        assert hasattr(package, name)


def test_names_are_loaded_when_used() -> None:
    """Importing the package loads no part of it, and a mechanism loads no registry."""
    loaded = "print(json.dumps([m for m in sys.modules if m.startswith('dither_protocol')]))"
    assert _isolated("import dither_protocol; " + loaded) == ["dither_protocol"]
    after = _isolated("from dither_protocol import mechanism; " + loaded)
    assert isinstance(after, list)
    assert "dither_protocol.mechanisms" in after
    assert not [name for name in after if "registry" in name or "wire" in name or "storage" in name]


def test_standard_library_only() -> None:
    """Every module of the room can be imported without site-packages, and loads nothing from elsewhere."""
    imports = "".join(f"import {name}; " for name in SUBMODULES)
    loaded = _isolated(imports + "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))")
    assert isinstance(loaded, list)
    assert set(loaded) - {"__main__", "dither_protocol"} <= set(sys.stdlib_module_names)
    assert {"dither_protocol.wire", "dither_protocol.storage"} <= set(SUBMODULES)


def test_standard_library_check_can_fail() -> None:
    """The isolated Python really has no site-packages: pytest is not there."""
    found = "import importlib.util; print(json.dumps(importlib.util.find_spec('pytest') is None))"
    assert _isolated(found) is True


def test_error_tree_is_complete() -> None:
    """Every error is a DitherError and stands in the tree that the module draws, under its base."""
    drawn = inspect.getdoc(errors) or ""
    for name, cls in inspect.getmembers(errors, inspect.isclass):
        if issubclass(cls, Exception):
            assert issubclass(cls, DitherError)
            assert name in drawn
            for base in cls.__bases__:
                assert (
                    issubclass(base, DitherError) or base is Exception or f"{name}({base.__name__})" in drawn
                )


def test_words_on_the_wire_are_pinned() -> None:
    """Clients and dashboards rely on the words for rejections and problems."""
    assert [str(word) for word in errors.Rejection] == [
        "malformed-report",
        "unknown-metric",
        "unknown-version",
        "metric-expired",
        "params-mismatch",
        "dimensions-invalid",
        "window-invalid",
        "report-too-early",
        "report-too-old",
        "payload-invalid",
    ]
    assert [str(word) for word in errors.BatchProblem] == [
        "malformed-body",
        "too-many-reports",
        "until-past",
        "until-too-far",
    ]
