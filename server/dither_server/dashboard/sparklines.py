"""Small pictures of how a number went, as SVG: they need no script. Pure; colours come from the style sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from dither_server.formats import percent, whole

WIDTH: Final = 168
HEIGHT: Final = 40
_PAD: Final = 3


@dataclass(frozen=True, slots=True)
class Line:
    """How a share went.

    Attributes:
        name: of the value.
        shares: one for each window, None where there is no estimate.
        lower: ends of the intervals, in the same way.
        upper: the same.
    """

    name: str
    shares: Sequence[float | None]
    lower: Sequence[float | None]
    upper: Sequence[float | None]


def bars(labels: Sequence[str], counts: Sequence[int | None]) -> Markup:
    """A column for each window, from zero."""
    most = max((count for count in counts if count), default=1)
    step = WIDTH / max(1, len(labels))
    shapes = []
    for place, (label, count) in enumerate(zip(labels, counts, strict=True)):
        height = (HEIGHT - 2) * (count or 0) / most
        if count:
            height = max(height, 1.5)
        shapes.append(
            Markup(
                '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>'
            ).format(
                place * step + 0.5, HEIGHT - height, max(1.0, step - 1.5), height, label, whole(count or 0)
            )
        )
    known = [count for count in counts if count is not None]
    told = f"Reports in the last {len(labels)} windows: latest {whole(known[-1] if known else 0)}, most {whole(most)}"
    return _svg("bars", told, Markup("").join(shapes))


def lines(labels: Sequence[str], series: Sequence[Line]) -> Markup:
    """A line with its band for each of a few values; zero is drawn, and negative shares lie below it."""
    ends = [end for line in series for end in (*line.lower, *line.upper) if end is not None]
    low, high = min(0.0, *ends, 0.0), max(0.01, *ends, 0.01)
    step = (WIDTH - 2 * _PAD) / max(1, len(labels) - 1)

    def at(place: int, share: float) -> str:
        y = HEIGHT - _PAD - (HEIGHT - 2 * _PAD) * (share - low) / (high - low)
        return f"{_PAD + place * step:.1f},{y:.1f}"

    zero = at(0, 0.0).partition(",")[2]
    shapes = [Markup('<line class="zero" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, zero, zero)]
    told = []
    for number, line in enumerate(series, start=1):
        known = [place for place, share in enumerate(line.shares) if share is not None]
        middle = [at(place, share) for place, share in enumerate(line.shares) if share is not None]
        over = [at(place, end) for place, end in enumerate(line.upper) if end is not None]
        under = [at(place, end) for place, end in enumerate(line.lower) if end is not None]
        shapes.append(
            Markup('<polygon class="s{}" points="{}"/>').format(number, " ".join([*over, *under[::-1]]))
        )
        shapes.append(Markup('<polyline class="s{}" points="{}"/>').format(number, " ".join(middle)))
        for point in middle if len(middle) == 1 else middle[-1:]:
            x, _, y = point.partition(",")
            shapes.append(Markup('<circle class="s{}" cx="{}" cy="{}" r="2.2"/>').format(number, x, y))
        if known:
            told.append(f"{line.name} {percent(line.shares[known[-1]])}")
    return _svg(
        "lines",
        f"Shares over the last {len(labels)} windows; latest: {', '.join(told)}",
        Markup("").join(shapes),
    )


def _svg(kind: str, told: str, shapes: Markup) -> Markup:
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, WIDTH, HEIGHT, told, shapes)
