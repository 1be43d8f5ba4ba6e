"""The tree of errors is as its docstring draws it."""

import inspect
import re

from dither_client import errors
from dither_protocol.errors import DitherError


def _own() -> list[type[Exception]]:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if kind.__module__ == errors.__name__]


def test_everything_is_a_dither_error() -> None:
    """One except clause catches whatever the SDK raises of its own."""
    assert len(_own()) == 10
    assert all(issubclass(kind, DitherError) for kind in _own())


def test_the_drawn_tree_names_every_error_and_its_parent() -> None:
    """Four columns of indentation are one level."""
    assert errors.__doc__
    parents = [DitherError]
    drawn = set()
    for indent, name in re.findall(r"^ {4}([ │├└─]*)(\w+Error)\b", errors.__doc__, re.MULTILINE):
        kind = getattr(errors, name, None)
        if kind is None or kind is DitherError:
            continue
        level = len(indent) // 4
        assert issubclass(kind, parents[level - 1]), name
        parents[level:] = [kind]
        drawn.add(kind)
    assert drawn == set(_own())
