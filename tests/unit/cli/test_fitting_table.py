import io

import pytest
from rich.console import Console
from rich.text import Text

from dither_cli.tables import fitting_table

ROWS = [
    {"metric": Text("default_browser"), "received": "1,234,567", "duplicate": "89", "imbalance": "0", "n": "765,432"},
    {"metric": Text("all"), "received": "1,234,567", "duplicate": "89", "imbalance": "0", "n": ""},
]  # fmt: skip


def _printed(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(fitting_table(ROWS, console, left=(), optional=("n", "duplicate")))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("width", "shown", "hidden"),
    [(80, ("765,432", "89"), ()), (48, ("89",), ("765,4",)), (40, (), ("765,4", "89"))],
)
def test_columns_that_do_not_fit_are_left_out_whole(
    width: int, shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    """A narrow terminal shows fewer columns, never a number without its last digits, and always whose they are."""
    printed = _printed(width)
    assert all(text in printed for text in ("default_browser", "1,234,567", "imbalance", *shown))
    assert not any(text in printed for text in hidden)
