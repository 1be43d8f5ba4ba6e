"""The curves of growth as one HTML page that needs no other file, drawn as the page of `dither simulate` is."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

from dither_cli.simulate_page import filled, plotly_script
from growth_words import cost_text, exponent_text

_TITLE: Final = "How costs grow"
_PLOT_PX: Final = 320
_LEGEND_PX: Final = 20


def page(document: Mapping[str, Any]) -> str:
    """The page.

    Raises:
        FileNotFoundError: the package plotly is not installed with its script.
        ValueError: the page of the simulation has another form.
    """
    simulation = files("dither_cli").joinpath("data", "simulate.html").read_text("utf-8")
    head = simulation[: simulation.index("<body>")]
    drawing = simulation[simulation.index("const HUES") : simulation.index("function latency()")]
    facts = document["machine"]
    drawn = {"curves": [{"chart": chart_of(curve), **curve} for curve in document["curves"]]}
    parts = {
        "title": _TITLE,
        "machine": escape(f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}"),
        "charts": "".join(_sections(document)),
        "rows": "".join(_rows(document)),
        "drawing": drawing,
        "data": json.dumps(drawn).replace("<", "\\u003c"),
        "plotly": plotly_script(),
    }
    return filled(head + _BODY, parts)


def chart_of(curve: Mapping[str, Any]) -> str:
    """Which chart a curve is drawn in: those of one suite and unit; of domains those of one kind of cost."""
    suite, _, name = str(curve["curve"]).partition("/")
    return (
        f"{suite}-{name.split()[0]}"
        if " " in name
        else f"{suite}-{'time' if curve['unit'] == 's' else 'memory'}"
    )


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    charts: dict[str, list[Mapping[str, Any]]] = {}
    for curve in document["curves"]:
        charts.setdefault(chart_of(curve), []).append(curve)
    for key, found in charts.items():
        title = escape(f"{key.partition('-')[2]} by number of {found[0]['size']}".capitalize())
        style = f"height: {_PLOT_PX + _LEGEND_PX * len(found)}px"
        yield f'<section><h2>{title}</h2><div class="chart" style="{style}" id="{key}"></div></section>'


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for curve in document["curves"]:
        points, unit = curve["points"], curve["unit"]
        cells = [
            curve["size"],
            cost_text(points[0][1], unit),
            cost_text(points[-1][1], unit),
            exponent_text(curve),
            curve["knee"],
        ]
        yield f'<tr><th scope="row">{escape(curve["title"])}</th>'
        yield "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


_BODY: Final = """<body>
<h1>@@title@@</h1>
<section><p>Processor time and memory, measured on @@machine@@. Both axes are logarithmic: a level line is a cost that
does not depend on the size, a diagonal one a cost in proportion to it.</p></section>
<div class="grid">@@charts@@</div>
<div class="grid"><section><h2>Exponents and knees</h2><div class="wide"><table>
<thead><tr><th>cost</th><th>size</th><th>smallest</th><th>largest</th><th>exponent</th><th>knee</th></tr></thead>
<tbody>@@rows@@</tbody></table></div>
<p class="note">The exponent is fitted over the upper half of the sizes.</p></section></div>
<script type="application/json" id="data">@@data@@</script>
<script>@@plotly@@</script>
<script>
"use strict";
const run = JSON.parse(document.getElementById("data").textContent);
@@drawing@@
function all() {
  const charts = new Map();
  for (const curve of run.curves) {
    if (!charts.has(curve.chart)) charts.set(curve.chart, []);
    charts.get(curve.chart).push(curve);
  }
  for (const [id, curves] of charts) {
    const lines = curves.map((curve, i) => {
      const hue = i % HUES.length, dash = (i + Math.floor(i / HUES.length)) % DASHES.length;
      const [x, y] = [0, 1].map((place) => curve.points.map((point) => point[place]));
      return line(safe(curve.title), x, y, hue, {
        mode: "lines+markers", line: { color: colour(HUES[hue]), dash: DASHES[dash], width: 2 },
        marker: { color: colour(HUES[hue]), symbol: MARKS[dash], size: 6 },
        hovertemplate: "%{x:,}: %{y:.3~s}" + curve.unit,
      });
    });
    const log = { type: "log", dtick: 1, tickformat: "~s" };
    const unit = curves[0].unit === "s" ? "seconds" : "bytes";
    draw(id, lines, layout(axis(curves[0].size, log), axis(unit, log), {
      hovermode: "closest", legend: { x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 11 } },
    }));
  }
}
all();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
</script>
</body>
</html>
"""
