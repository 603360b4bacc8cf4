// Charts with axes and units, drawn by uPlot (vendored, see vendor/README.md) on a canvas.

import { brief, count, duration, el } from "/console/dom.js";

const HEIGHT = 190;
/** Colours of series, as the stylesheet names them. */
const SERIES_MAX = 6;
/** Upper ends of the histogram's buckets: 1, 2, 3, 5, 7 and their multiples of ten, in microseconds. */
const EDGES = [...Array(9).keys()].flatMap((power) => [1, 2, 3, 5, 7].map((digit) => digit * 10 ** power));

const scheme = matchMedia("(prefers-color-scheme: dark)");
const shown = new Set();
scheme.addEventListener("change", () => shown.forEach((chart) => chart.redraw()));

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const stroke = (index) => () => color(`s${(index % SERIES_MAX) + 1}`);

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (seconds) => clockFormat.format(new Date(seconds * 1000));

function axis(values, more = {}) {
  return {
    stroke: () => color("quiet"), grid: { stroke: () => color("line"), width: 1 }, ticks: { stroke: () => color("line"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif", size: 34, values: (chart, splits) => splits.map((value) => (value === null ? null : values(value))), ...more,
  };
}

/** A chart in `container`, made when it is first drawn and again when what it consists of changes. */
export class Chart {
  #container;
  #options;
  #key = "";
  #chart = null;
  #observer;

  /** `options(series)` gives uPlot's options for the names of the series. */
  constructor(container, options) {
    this.#container = container;
    this.#options = options;
    container.setAttribute("role", "img");
    this.#observer = new ResizeObserver(() => this.#fit());
    this.#observer.observe(container);
  }

  /** Draws `data` (uPlot's columns). `label` says in words what can be seen. */
  draw(names, data, label) {
    this.#container.setAttribute("aria-label", label);
    const width = this.#container.clientWidth;
    // A page that is hidden has no width; what it shows is drawn once it is shown.
    if (width === 0) return;
    const key = names.join("\n");
    if (!this.#chart || key !== this.#key) {
      this.destroy();
      this.#key = key;
      const common = { width, height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [10, 30, 0, 0] };
      this.#chart = new window.uPlot({ ...common, ...this.#options(names) }, data, this.#container);
      this.#container.uplot = this.#chart;
      shown.add(this.#chart);
    } else {
      this.#chart.setData(data);
    }
  }

  destroy() {
    if (!this.#chart) return;
    shown.delete(this.#chart);
    this.#chart.destroy();
    this.#chart = null;
  }

  #fit() {
    const width = this.#container.clientWidth;
    if (this.#chart && width > 0 && width !== this.#chart.width) this.#chart.setSize({ width, height: HEIGHT });
  }
}

const line = (name, index, more = {}) => ({ label: name, stroke: stroke(index), width: 2, points: { show: false }, ...more });
/** The same on an axis, where whole numbers need no decimals. */
export const briefDuration = (us) => duration(us).replace(/\.0(?= )/, "");
const fromZero = (chart, least, most) => [0, Math.max(most ?? 0, 1e-9) * 1.08];

/** Values over the last two minutes. `unit` formats a value of the y axis; `marks()` gives vertical marks in seconds. */
export function overTime(container, unit, marks = () => []) {
  return new Chart(container, (names) => ({
    scales: { x: { time: true }, y: { range: fromZero } },
    axes: [axis(clock, { space: 80, incrs: [5, 10, 15, 30, 60, 120] }), axis(unit, { size: 62 })],
    series: [{}, ...names.map((name, index) => line(name, index))],
    hooks: { draw: [(chart) => drawMarks(chart, marks())] },
  }));
}

function drawMarks(chart, marks) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = color("fair");
  ctx.setLineDash([5, 4]);
  ctx.lineWidth = devicePixelRatio;
  for (const at of marks) {
    if (at < chart.scales.x.min || at > chart.scales.x.max) continue;
    const x = Math.round(chart.valToPos(at, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** Sums the engine's fine buckets up to round ones; from the first that holds something to the last. */
export function buckets(histograms) {
  const all = histograms.map((histogram) => {
    const sums = EDGES.map(() => 0);
    for (const [upper, times] of Object.entries(histogram)) {
      // A bucket of the engine may reach an eighth over the durations it holds.
      const index = EDGES.findIndex((edge) => Number(upper) <= edge * 1.0625);
      sums[index < 0 ? EDGES.length - 1 : index] += times;
    }
    return sums;
  });
  const used = EDGES.map((_, index) => index).filter((index) => all.some((sums) => sums[index] > 0));
  if (used.length === 0) return { edges: [], all: all.map(() => []) };
  const [first, last] = [Math.max(0, used[0] - 1), Math.min(EDGES.length, used.at(-1) + 2)];
  return { edges: EDGES.slice(first, last), all: all.map((sums) => sums.slice(first, last)) };
}

/** Buckets along the x axis, named by the longest duration they hold. `edges()` gives them. */
const bucketAxis = (edges) => axis((index) => (edges()[index] ? `\u2264 ${briefDuration(edges()[index])}` : ""), {
  space: 58, incrs: [1, 2, 3, 5, 10], splits: undefined,
});

/** How many rounds took how long. */
export function histogram(container) {
  let edges = [];
  const chart = new Chart(container, () => ({
    scales: { x: { time: false, range: (self, least, most) => [least - 0.6, most + 0.6] }, y: { range: fromZero } },
    axes: [bucketAxis(() => edges), axis((value) => (Number.isInteger(value) ? count(value) : ""), { size: 62 })],
    series: [{}, { label: "rounds", stroke: stroke(0), fill: () => color("s1"), width: 0, points: { show: false }, paths: window.uPlot.paths.bars({ size: [0.86, 80] }) }],
  }));
  return (durations, label) => {
    const summed = buckets([durations]);
    edges = summed.edges;
    chart.draw(["rounds"], [edges.map((_, index) => index), summed.all[0]], label);
  };
}

/** What part of each policy's rounds took how long. */
export function histograms(container) {
  let edges = [];
  const chart = new Chart(container, (names) => ({
    scales: { x: { time: false, range: (self, least, most) => [least - 0.3, most + 0.3] }, y: { range: fromZero } },
    axes: [bucketAxis(() => edges), axis((value) => `${brief(value)} %`, { size: 62 })],
    series: [{}, ...names.map((name, index) => line(name, index, { points: { show: true, size: 5 } }))],
  }));
  return (items, label) => {
    const summed = buckets(items.map((item) => item.durations));
    edges = summed.edges;
    const shares = summed.all.map((sums) => {
      const all = sums.reduce((sum, times) => sum + times, 0);
      return sums.map((times) => (all ? (times / all) * 100 : 0));
    });
    chart.draw(items.map((item) => item.policy), [edges.map((_, index) => index), ...shares], label);
  };
}

/** Values over turns, a series for each party. */
export function overTurns(container, unit) {
  return new Chart(container, (names) => ({
    height: 170,
    scales: { x: { time: false } },
    axes: [axis((value) => (Number.isInteger(value) ? `turn ${value}` : ""), { space: 64 }), axis(unit, { size: 74 })],
    series: [{}, ...names.map((name, index) => line(name, index, { spanGaps: true, points: { show: true, size: 5 } }))],
  }));
}

/** Microseconds that lie between two labels of an axis: durations that are told in a round number. */
const RUN_STEPS = [...EDGES.filter((us) => us < 1e7 && !/[37]/.test(us)), 1e7, ...[1, 2, 5, 10, 30, 60, 120, 360, 720, 1440].map((minutes) => minutes * 6e7)];

/** A value that stands until the next, over microseconds since the beginning; of every further series the points. `marks()` as over time. */
export function overRun(container, unit, marks) {
  const stands = (name) => line(name, 0, { paths: window.uPlot.paths.stepped({ align: 1 }) });
  const points = (name, index) => line(name, index, { paths: () => null, points: { show: true, size: 7, stroke: stroke(index), fill: index === 1 ? stroke(1) : () => color("panel") } });
  return new Chart(container, (names) => ({
    scales: { x: { time: false } },
    axes: [axis(briefDuration, { space: 80, incrs: RUN_STEPS }), axis(unit, { size: 74 })],
    series: [{}, ...names.map((name, index) => (index === 0 ? stands(name) : points(name, index)))],
    hooks: { draw: [(chart) => drawMarks(chart, marks())] },
  }));
}

/** Names the series of a chart in its colours. */
export function legend(container, names) {
  const key = names.join("\n");
  if (container.dataset.names === key) return;
  container.dataset.names = key;
  container.replaceChildren(...names.map((name, index) =>
    el("li", {}, el("span", { class: `swatch s${(index % SERIES_MAX) + 1}`, "aria-hidden": "true" }), name)));
}
