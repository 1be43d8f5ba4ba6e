"use strict";
// Draws the charts of a metric by plotly, from the numbers that the server sends, in the colours of the style sheet.

const DitherCharts = (() => {
  const LABEL = { narrow: 16, wide: 30, hover: 90 };  // characters of a label

  const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

  // Plotly reads some HTML in texts; and a label must not turn around what stands beside it.
  function safe(text) {
    return "\u2068" + text.replace(/[&<>]/g, (sign) => escapes[sign]) + "\u2069";
  }

  function short(text, length) {
    const signs = window.Intl && Intl.Segmenter ? [...new Intl.Segmenter().segment(text)].map((s) => s.segment) : [...text];
    return safe(signs.length > length ? signs.slice(0, length - 1).join("") + "…" : text);
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = ["ink", "soft", "line", "surface", "grid", "zero", "bar", "bar-faint", "accent", "s1", "s2", "s3", "s4", "s5"];
    return Object.fromEntries(names.map((name) => [name, colour(name)]));
  }

  function see(colour, opacity) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  }

  function base(colour) {
    return {
      paper_bgcolor: colour.surface, plot_bgcolor: colour.surface, showlegend: false, dragmode: false,
      font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif", size: 13, color: colour.ink },
      margin: { l: 10, r: 16, t: 8, b: 36 }, hoverlabel: { bgcolor: colour.surface, bordercolor: colour.line, font: { color: colour.ink }, align: "left" },
    };
  }

  const percent = (share, digits) => `${(100 * share).toFixed(digits).replace("-", "−")}\u202f%`;
  const digits = (chart) => {
    const width = Math.min(...chart.upper.map((upper, i) => upper - chart.lower[i])) / 2;
    return width > 0 ? Math.min(4, Math.max(1, Math.ceil(-Math.log10(100 * width)) + 1)) : 1;
  };

  function valuesFigure(chart, colour, width) {
    const narrow = width < 560;
    const places = chart.labels.map((_, place) => place);
    const decimals = digits(chart);
    const shown = chart.mode === "norm_sub" ? chart.norm_sub : chart.estimate;
    const hover = chart.labels.map((label, i) => [
      short(label, LABEL.hover), percent(chart.estimate[i], decimals), percent(chart.lower[i], decimals),
      percent(chart.upper[i], decimals), chart.norm_sub[i] === null ? "–" : percent(chart.norm_sub[i], decimals),
      chart.present[i] === null ? "" : chart.present[i] ? "clearly there" : "maybe not there",
    ]);
    const words = "<b>%{customdata[0]}</b><br>estimate %{customdata[1]}<br>interval %{customdata[2]} to %{customdata[3]}"
      + "<br>norm_sub %{customdata[4]}<br>%{customdata[5]}<extra></extra>";
    const bars = {
      type: "bar", orientation: "h", name: chart.mode, y: places, x: shown, customdata: hover, hovertemplate: words,
      marker: {
        color: chart.present.map((there) => (there === false ? colour["bar-faint"] : colour.bar)),
        line: { width: 0 },
      }, width: 0.62,
    };
    const raw = {
      type: "scatter", mode: "markers", name: "raw", y: places, x: chart.estimate, customdata: hover, hovertemplate: words,
      marker: { symbol: "diamond", size: 7, color: colour.ink },
      error_x: {
        type: "data", symmetric: false, color: colour.ink, thickness: 1.6, width: 5,
        array: chart.upper.map((upper, i) => upper - chart.estimate[i]),
        arrayminus: chart.lower.map((lower, i) => chart.estimate[i] - lower),
      },
    };
    const layout = base(colour);
    layout.height = Math.max(150, places.length * (narrow ? 30 : 32) + 60);
    layout.bargap = 0.3;
    layout.xaxis = {
      tickformat: ".0%", gridcolor: colour.grid, zeroline: true, zerolinecolor: colour.zero, zerolinewidth: 2, rangemode: "tozero",
      fixedrange: true, automargin: true, nticks: narrow ? 5 : 10,
    };
    if (chart.range) {
      const [low, high] = chart.range, more = 0.03 * (high - low);
      layout.xaxis.range = [low < 0 ? low - more : 0, high + more];
    }
    layout.yaxis = {
      tickvals: places, ticktext: chart.labels.map((label) => short(label, narrow ? LABEL.narrow : LABEL.wide) + " "),
      range: [places.length - 0.4, -0.6], automargin: true, fixedrange: true, showgrid: false, zeroline: false, ticks: "",
    };
    return { data: [bars, raw], layout };
  }

  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const MARKS = ["circle", "square", "diamond", "triangle-up", "x"];

  function historyFigure(chart, colour, width) {
    const narrow = width < 560;
    const data = [];
    chart.lines.forEach((line, i) => {
      const hue = colour[`s${i + 1}`];
      const shares = chart.mode === "norm_sub" ? line.norm_sub : line.estimate;
      const x = chart.starts;
      const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false, connectgaps: false };
      data.push({ ...edge, y: line.lower });
      data.push({ ...edge, y: line.upper, fill: "tonexty", fillcolor: see(hue, 0.16) });
      data.push({
        type: "scatter", mode: "lines+markers", name: short(line.label, narrow ? LABEL.narrow : LABEL.wide), x, y: shares, connectgaps: false,
        line: { color: hue, width: 2, dash: DASHES[i] }, marker: { color: hue, size: 7, symbol: MARKS[i] },
        customdata: chart.windows.map((window, at) => [
          window, chart.n[at].toLocaleString("en").replaceAll(",", "\u202f"), short(line.label, LABEL.hover),
          shares[at] === null ? "–" : percent(shares[at], 1), line.lower[at] === null ? "–" : percent(line.lower[at], 1),
          line.upper[at] === null ? "–" : percent(line.upper[at], 1),
        ]),
        hovertemplate: "<b>%{customdata[2]}</b>, %{customdata[0]}<br>%{customdata[3]}<br>interval %{customdata[4]} to %{customdata[5]}<br>n = %{customdata[1]}<extra></extra>",
      });
    });
    const layout = base(colour);
    layout.height = 360 + (narrow ? 22 * chart.lines.length : 24);
    layout.showlegend = true;
    layout.legend = { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, traceorder: "normal", font: { size: 13 } };
    layout.margin.b = 46;
    layout.xaxis = { type: "date", gridcolor: colour.grid, fixedrange: true, automargin: true, nticks: narrow ? 4 : 8 };
    if (chart.windows.length <= (narrow ? 4 : 8)) Object.assign(layout.xaxis, { tickvals: chart.starts, ticktext: chart.windows });
    layout.yaxis = {
      tickformat: ".0%", gridcolor: colour.grid, zeroline: true, zerolinecolor: colour.zero, zerolinewidth: 2, rangemode: "tozero",
      fixedrange: true, automargin: true,
    };
    return { data, layout };
  }

  function figure(chart, width) {
    return (chart.kind === "values" ? valuesFigure : historyFigure)(chart, colours(), width);
  }

  // Draw every chart of the page that has changed.
  function draw(main, charts, again) {
    for (const place of main.querySelectorAll("[data-chart]")) {
      const chart = charts[place.dataset.chart];
      if (!chart) { place.hidden = true; continue; }
      place.hidden = false;
      const source = JSON.stringify(chart) + place.clientWidth;
      if (!again && place.dataset.drawn === source.length + ":" + hash(source)) continue;
      place.dataset.drawn = source.length + ":" + hash(source);
      const { data, layout } = figure(chart, place.clientWidth);
      Plotly.react(place, data, layout, { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: false });
    }
    for (const button of main.querySelectorAll("[data-png]")) button.hidden = !charts[button.dataset.png];
  }

  function hash(text) {
    let sum = 0;
    for (let i = 0; i < text.length; i++) sum = (Math.imul(sum, 31) + text.charCodeAt(i)) | 0;
    return sum;
  }

  // A picture carries all that its numbers must not be shown without.
  async function save(chart, name) {
    const width = 1000, edge = 24, colour = colours();
    const { data, layout } = figure(chart, width);
    const svg = await Plotly.toImage({ data, layout }, { format: "svg", width: width - 2 * edge, height: layout.height });
    const image = new Image();
    image.src = svg;
    await image.decode();
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d");
    const fonts = { title: `600 18px ${layout.font.family}`, facts: `13px ${layout.font.family}` };
    const title = lines(pen, chart.title, fonts.title, width - 2 * edge);
    const facts = lines(pen, chart.facts, fonts.facts, width - 2 * edge);
    const below = edge + 26 * title.length + 8;
    const height = below + layout.height + 12 + 20 * facts.length + edge;
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    pen.scale(2, 2);
    pen.fillStyle = colour.surface;
    pen.fillRect(0, 0, width, height);
    pen.drawImage(image, edge, below, width - 2 * edge, layout.height);
    write(pen, title, fonts.title, colour.ink, edge, edge + 18, 26);
    write(pen, facts, fonts.facts, colour.soft, edge, below + layout.height + 24, 20);
    const link = document.createElement("a");
    link.download = `${name.replace(/[^\w.-]+/g, "_")}.png`;
    link.href = canvas.toDataURL("image/png");
    link.click();
  }

  function lines(pen, text, font, width) {
    pen.font = font;
    const found = [""];
    for (const word of text.split(/\s+/).flatMap((each) => each.match(/.{1,80}/gu) || [])) {
      const longer = `${found.at(-1)} ${word}`.trim();
      if (pen.measureText(longer).width <= width) found[found.length - 1] = longer;
      else found.push(word);
    }
    return found;
  }

  function write(pen, found, font, colour, x, y, step) {
    pen.font = font;
    pen.fillStyle = colour;
    pen.textAlign = "left";
    found.forEach((line, place) => pen.fillText(line, x, y + place * step));
  }

  return { draw, save };
})();
