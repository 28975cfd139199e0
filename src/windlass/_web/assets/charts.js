// <figure class="chart" data-chart='{…}'> or data-chart-url="…" becomes a uPlot chart.
//
// {"times": [unix seconds], "series": [{"label", "values", "colour", "fill"?, "bars"?}],
//  "unit": "" | "s" | "/s" | "%" | "B", "stack"?: true}
//
// Stacked series are bars on top of each other, the first one lowest.
//
// `colour` names a token (blue, green, red, amber, violet, slate; green-fill … for areas): charts follow the theme.

const charts = new Map();

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// light-dark() is resolved by styling an element with it, not by reading the property.
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${CSS.escape(name)})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faint(rgb) {
  return rgb.replace(/^rgb\(([^)]+)\)$/, (_, parts) => `rgba(${parts.split(/[\s,]+/).join(", ")}, 0.13)`);
}

function seconds(value) {
  if (value < 0.001 && value > 0) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${+(value * 1000).toPrecision(3)} ms`;
  if (value < 120) return `${+value.toPrecision(3)} s`;
  return value < 7200 ? `${+(value / 60).toPrecision(3)} min` : `${+(value / 3600).toPrecision(3)} h`;
}

function bytes(value) {
  const power = Math.min(Math.floor(Math.log2(Math.max(value, 1)) / 10), 4);
  return `${+(value / 1024 ** power).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function shown(value, unit) {
  if (value == null) return "–";
  if (value === 0) return "0";
  if (unit === "B") return bytes(value);
  if (unit === "s") return seconds(value);
  const short = new Intl.NumberFormat("en", { notation: value >= 10_000 ? "compact" : "standard", maximumFractionDigits: 2 });
  return `${short.format(value)}${unit}`;
}

const pad = (number) => String(number).padStart(2, "0");

// The reader's own zone; a day's name only where a new one begins or the steps are days.
function instants(_, ticks, __, ___, step) {
  let day = "";
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    const date = at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
    const isNew = date !== day && day !== "";
    day = date;
    if (step >= 86_400) return date;
    const time = `${pad(at.getHours())}:${pad(at.getMinutes())}${step < 60 ? `:${pad(at.getSeconds())}` : ""}`;
    return isNew ? `${time}\n${date}` : time;
  });
}

// The moment that is pointed at, beside the legend; nothing while nothing is.
function moment(_, seconds) {
  if (seconds == null) return "";
  const at = new Date(seconds * 1000);
  return `${at.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

// Of things that are counted there are no halves.
const WHOLE = [1, 2, 5].flatMap((step) => [...Array(10).keys()].map((power) => step * 10 ** power)).sort((a, b) => a - b);

// Of durations, those that people count in.
const TIMES = [
  ...[-6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400, 172_800],
];

// Of bytes, those that make whole units.
const SIZES = [...Array(50).keys()].map((power) => 2 ** power);

// As wide as what is written there, so that no chart begins with a gap.
const besides = (_, labels) => (labels ? 18 + 6.5 * Math.max(...labels.map((label) => label.length)) : 40);
const below = (_, labels) => (labels?.some((label) => label.includes("\n")) ? 40 : 28);

// A line through one value is nothing to see: it gets a dot.
function lonely(chart, place) {
  const values = chart.data[place];
  const known = [...values.keys()].filter((at) => values[at] != null);
  return known.length === 1 ? known : [];
}

// A stacked one is drawn from zero to the sum of itself and those below it, the highest first, so
// that what lies in front leaves only its own share to be seen.
function order(told) {
  return told.stack ? [...told.series].reverse() : told.series;
}

function rowsOf(told) {
  if (!told.stack) return [told.times, ...told.series.map((one) => one.values)];
  const sums = told.times.map(() => 0);
  const rows = told.series.map((one) => one.values.map((value, at) => (sums[at] += value ?? 0)));
  return [told.times, ...rows.reverse()];
}

// Half a step more on either side, or the first and the last bar are cut in two.
function aroundBars(plot, low, high) {
  const times = plot.data[0];
  const half = times.length > 1 ? (times[1] - times[0]) / 2 : 30;
  return [low - half, high + half];
}

function options(figure, told, width, height) {
  const bars = (one) => told.stack || one.bars;
  // The legend says what is one's own, also after the values were replaced in place; of counts the
  // sum of all while nothing is pointed at.
  const own = (place) => (_, __, ___, at) => {
    const now = charts.get(figure)?.told ?? told;
    const { values } = order(now)[place];
    if (at == null) return now.stack ? shown(values.reduce((sum, value) => sum + (value ?? 0), 0), now.unit ?? "") : "";
    return shown(values[at], now.unit ?? "");
  };
  const axis = {
    stroke: colour("ink-faint"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    font: `11px ${token("font")}`,
  };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    cursor: { points: { size: 7 }, y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: { x: { range: told.stack ? aroundBars : undefined }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, size: below, values: instants }, { ...axis, size: besides, gap: 8, incrs: { "": WHOLE, s: TIMES, B: SIZES }[told.unit ?? ""], values: (_, ticks) => ticks.map((tick) => shown(tick, told.unit ?? "")) }],
    series: [
      { label: "Time", value: moment },
      ...order(told).map((one, place) => ({
        label: one.label,
        stroke: colour(one.colour),
        width: bars(one) ? 0 : 1.75,
        fill: bars(one) ? colour(one.colour) : one.fill ? faint(colour(one.colour)) : undefined,
        paths: bars(one) ? uPlot.paths.bars({ size: [0.7, 24], radius: told.stack ? 0 : 0.15 }) : undefined,
        points: { show: !bars(one), size: 5, filter: lonely },
        spanGaps: true,
        value: own(place),
      })),
    ],
  };
}

function draw(figure, told) {
  const old = charts.get(figure);
  const rows = rowsOf(told);
  const same = old && JSON.stringify(old.told.series.map((one) => one.label)) === JSON.stringify(told.series.map((one) => one.label));
  if (same && !old.stale) {
    old.told = told;
    old.plot.setData(rows); // in place: nothing flickers
    return;
  }
  old?.plot.destroy();
  const canvas = figure.querySelector(".canvas");
  canvas.replaceChildren();
  const height = Math.max(figure.clientHeight - 28, 160);
  const plot = new uPlot(options(figure, told, canvas.clientWidth, height), rows, canvas);
  charts.set(figure, { told, plot, stale: false });
  if (told.stack) { // drawn the highest first, told the lowest first
    [...canvas.querySelectorAll(".u-legend tr")].slice(1).forEach((row, at) => (row.style.order = -at));
  }
}

async function load(figure) {
  if (figure.dataset.chart) {
    draw(figure, JSON.parse(figure.dataset.chart));
    return;
  }
  const answer = await fetch(figure.dataset.chartUrl, { credentials: "same-origin" });
  if (answer.ok) draw(figure, await answer.json()); // else it keeps what it shows
}

function all() {
  for (const figure of charts.keys()) if (!figure.isConnected) charts.delete(figure);
  for (const figure of document.querySelectorAll(".chart")) load(figure).catch((error) => console.warn("chart:", error));
}

function redraw() {
  for (const [figure, chart] of charts) {
    chart.stale = true;
    draw(figure, chart.told);
  }
}

document.addEventListener("htmx:after:swap", all);
document.addEventListener("windlass:theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new ResizeObserver(() => {
  for (const [figure, { plot }] of charts) {
    const width = figure.querySelector(".canvas").clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: plot.height });
  }
}).observe(document.body);
all();
