"""Predicted and real errors of an estimate as two rows of a table, by `dither demo` and `dither quality` alike."""

from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text

from dither_cli.tables import percent

Row = dict[str, str | Text]

EXPLAINED: Final = (
    "MAE: mean absolute error. Relative error: median over the values that hold nine tenths of all answers. "
    "Noise ratio: error over that of as many true answers, the price of privacy."
)


def predicted_row(head: Row, errors: Mapping[str, Any], coverage: float) -> Row:
    """What was predicted.

    Args:
        head: the first columns.
        errors: as `dither_protocol.utility.PredictedUtility` in JSON.
        coverage: which of them to show, a share.
    """
    return head | {"": "predicted"} | _figures(errors) | {"coverage": f"{100 * coverage:.1f} %"}


def real_row(head: Row, errors: Mapping[str, Any]) -> Row:
    """What came out, below it; its first columns are empty."""
    covered = f"{errors['covered']} of {errors['values']}"
    return dict.fromkeys(head, "") | {"": "real"} | _figures(errors) | {"coverage": covered}


def _figures(errors: Mapping[str, Any]) -> Row:
    ratio = errors["noise_ratio"]
    return {
        "MAE": percent(errors["mean_absolute_error"]),
        "relative error": f"{100 * errors['relative_error']:.1f} %",
        "coverage": "",
        "noise ratio": "" if ratio is None else f"{ratio:.2f}",
    }
