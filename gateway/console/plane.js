// The utility plane of a bargain: what each offer is worth to two of its parties, under weights that the viewer assumes.

import { amount, byId, el, say, plural, rows, termsText, words } from "/console/dom.js";
import {
  equalWishes, frontier, guessedWishes, isStepped, issuesOf, nash, offersOf, outcomes, partiesOf, RANGE_STEPS, readAssumed, rulesOf,
  spaceFrontier, utility, WEIGHT_MAX, withAssumed, writeAssumed,
} from "/console/utility.js";

const SVG = "http://www.w3.org/2000/svg";
/** Colours and shapes of parties; a bargain with more begins anew. */
const PARTIES_MAX = 6;
const HEIGHT_MAX = 430;
const EDGE = { left: 58, right: 18, top: 16, bottom: 42 };
/** Points of different turns so close together, in pixels, share a number. */
const NEAR = 14;
/** One number is written beside points for so many pixels of width; of more, every so many. */
const NUMBER_WIDTH = 24;
/** Lines through more offers than so many would hide them. */
const FAINT_FROM = 30;
/** So many points of a frontier are drawn as points. */
const DOTS_MAX = 60;

function svg(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) if (value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The mark of a party at a place: a circle, a square, triangles, a diamond, a hexagon. */
export function mark(party, x, y, size = 5) {
  const polygon = (...corners) => svg("polygon", { points: corners.map(([dx, dy]) => `${(x + dx * size).toFixed(1)},${(y + dy * size).toFixed(1)}`).join(" ") });
  return [
    () => svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: size }), () => polygon([-1, -1], [1, -1], [1, 1], [-1, 1]),
    () => polygon([0, -1.2], [1.2, 1], [-1.2, 1]), () => polygon([0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]),
    () => polygon([0, 1.2], [1.2, -1], [-1.2, -1]), () => polygon([-0.6, -1.1], [0.6, -1.1], [1.2, 0], [0.6, 1.1], [-0.6, 1.1], [-1.2, 0]),
  ][party % PARTIES_MAX]();
}

const series = (party) => `s${(party % PARTIES_MAX) + 1}`;
const share = (value) => value.toFixed(3);

export class Plane {
  #assumed = readAssumed("");
  #journal = null;
  #formKey = "";
  #drawn = null;

  constructor() {
    new ResizeObserver(() => this.#drawn && this.#drawChart(this.#drawn)).observe(byId("plane-chart"));
    byId("plane-form").addEventListener("input", (event) => this.#take(event.target));
    byId("plane-form").addEventListener("submit", (event) => event.preventDefault());
    byId("plane-guess").addEventListener("click", () => this.#assumeAll(guessedWishes));
    byId("plane-equal").addEventListener("click", () => this.#assumeAll(equalWishes));
  }

  /** Takes what the address assumes. */
  assume(text) {
    this.#assumed = readAssumed(text);
    this.#formKey = "";
    if (this.#journal) this.draw(this.#journal);
  }

  close() {
    this.#journal = this.#drawn = null;
    this.#formKey = "";
    byId("plane-panel").hidden = true;
  }

  draw(journal) {
    this.#journal = journal;
    const model = this.#model(journal);
    byId("plane-panel").hidden = !model;
    this.#drawn = model;
    if (!model) return;
    this.#drawForm(model);
    this.#drawChart(model);
    drawTable(model);
    drawLegend(model);
    say(byId("plane-note"), note(model, journal));
  }

  /** Everything that is drawn; absent where there is nothing to compare. */
  #model({ entries }) {
    const [offers, rules] = [offersOf(entries), rulesOf(entries)];
    const parties = partiesOf(offers, rules);
    const issues = issuesOf(offers, rules);
    if (offers.length === 0 || parties.length < 2 || issues.length === 0) return null;
    const wishes = withAssumed(equalWishes(issues, offers, parties), this.#assumed.wishes);
    const x = parties.includes(this.#assumed.x) ? this.#assumed.x : parties[0];
    const y = parties.includes(this.#assumed.y) && this.#assumed.y !== x ? this.#assumed.y : parties.find((party) => party !== x);
    const points = offers.map((offer) => ({
      ...offer, party: parties.indexOf(offer.by), x: utility(issues, wishes.get(x), offer.terms), y: utility(issues, wishes.get(y), offer.terms),
    }));
    const space = spaceFrontier(issues, wishes.get(x), wishes.get(y));
    const best = frontier(points);
    return { x, y, parties, issues, wishes, points, space, best, nash: nash(points), offers };
  }

  /** Takes one value of the form. */
  #take(input) {
    const model = this.#drawn;
    if (!model) return;
    const { x, y, wishes } = model;
    const { slot, issue, kind } = input.dataset;
    if (kind === "party") {
      this.#write({ x: slot === "x" ? input.value : y === input.value ? y : x, y: slot === "y" ? input.value : x === input.value ? x : y, wishes });
      return;
    }
    const wish = wishes.get(slot === "x" ? x : y).get(issue);
    if (kind === "weight") wish.weight = Math.min(WEIGHT_MAX, Math.max(0, Math.round(Number(input.value) || 0)));
    if (kind === "wants") wish.wants = input.value;
    this.#write({ x, y, wishes });
  }

  #assumeAll(made) {
    const { issues, offers, parties, x, y } = this.#drawn;
    this.#formKey = "";
    this.#write({ x, y, wishes: made(issues, offers, parties) });
  }

  /** Puts what is assumed into the address, and draws it. */
  #write({ x, y, wishes }) {
    this.#assumed = { x, y, wishes };
    history.replaceState(null, "", `${location.hash.split("?")[0]}?${writeAssumed(this.#assumed)}`);
    this.draw(this.#journal);
  }

  #drawForm(model) {
    const { x, y, parties, issues, wishes } = model;
    // A range that widens with the offers is no other form: somebody may be typing in it.
    const key = JSON.stringify([x, y, parties, issues.map(({ name, isNumber, values }) => [name, isNumber, isNumber ? 0 : values])]);
    if (key !== this.#formKey) {
      this.#formKey = key;
      const { id, value } = document.activeElement ?? {};
      const isInside = byId("plane-wishes").contains(document.activeElement);
      byId("plane-wishes").replaceChildren(wishesOf("x", x, model), wishesOf("y", y, model));
      if (isInside && byId(id)) {
        byId(id).focus();
        byId(id).value = value;
      }
    }
    for (const input of byId("plane-wishes").querySelectorAll("[data-issue]")) {
      const wish = wishes.get(input.dataset.slot === "x" ? x : y).get(input.dataset.issue);
      // What is being typed stays as it is typed.
      if (input !== document.activeElement) input.value = String(wish[input.dataset.kind]);
    }
    for (const range of byId("plane-wishes").querySelectorAll("[data-range]")) say(range, rangeText(issues.find((issue) => issue.name === range.dataset.range)));
  }

  #drawChart(model) {
    const container = byId("plane-chart");
    const width = container.clientWidth;
    if (width === 0) return;
    const { x, y, points } = model;
    const height = Math.min(HEIGHT_MAX, Math.max(300, Math.round(width * 0.8)));
    const at = scale(width, height);
    const chart = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(model) });
    chart.append(...axes(at, width, height, x, y), ...drawFrontier(model, at), ...drawPaths(model, at), ...drawPoints(points, at, width), ...drawMarks(model, at));
    container.replaceChildren(chart);
  }
}

/** From utilities to pixels. */
const scale = (width, height) => ({ x, y }) => ({
  x: EDGE.left + x * (width - EDGE.left - EDGE.right), y: height - EDGE.bottom - y * (height - EDGE.top - EDGE.bottom),
});

function wishesOf(slot, party, { parties, issues }) {
  const index = parties.indexOf(party);
  const choice = el("select", { id: `plane-${slot}`, "data-kind": "party", "data-slot": slot, "aria-label": `Party of the ${slot} axis` },
    ...parties.map((name) => el("option", { value: name, ...(name === party ? { selected: "" } : {}) }, name)));
  const name = parties.length > 2 ? choice : el("span", { class: "id" }, party);
  const symbol = svg("svg", { class: `symbol ${series(index)}`, width: 14, height: 14, "aria-hidden": "true" }, mark(index, 7, 7));
  const row = (issue) => {
    const id = `plane-${slot}-${issue.name}`;
    const common = { "data-slot": slot, "data-issue": issue.name };
    const [less, more] = issue.isNumber ? ["less is better", "more is better"] : [`${issue.values[0]} is best`, `${issue.values.at(-1)} is best`];
    return el("div", { class: "wish" },
      el("label", { for: id }, words(issue.name), " ", el("span", { class: "quiet", "data-range": issue.name })),
      el("input", { ...common, id, type: "number", min: "0", max: String(WEIGHT_MAX), step: "1", required: "", inputmode: "numeric", "data-kind": "weight", "aria-label": `weight of ${words(issue.name)} for ${party}` }),
      el("select", { ...common, id: `${id}-wants`, "data-kind": "wants", "aria-label": `what ${party} wants of ${words(issue.name)}` },
        el("option", { value: "less" }, less), el("option", { value: "more" }, more)));
  };
  return el("fieldset", {}, el("legend", {}, symbol, " ", name, el("span", { class: "quiet" }, ` ${slot} axis`)), ...issues.map(row));
}

/** What values an issue has, and who says so. */
function rangeText(issue) {
  const values = issue.isNumber ? `${amount(issue.name, issue.least)} to ${amount(issue.name, issue.most)}` : plural(issue.values.length, "value");
  return issue.isPublic ? values : `${values} seen`;
}

function axes(at, width, height, x, y) {
  const text = (left, top, anchor, what, more = {}) => svg("text", { x: left, y: top, "text-anchor": anchor, ...more }, what);
  const found = [];
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    const { x: left, y: top } = at({ x: tick, y: tick });
    found.push(svg("line", { class: "grid", x1: left, x2: left, y1: EDGE.top, y2: height - EDGE.bottom }), svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: top, y2: top }));
    found.push(text(left, height - EDGE.bottom + 16, "middle", String(tick)), text(EDGE.left - 7, top + 4, "end", String(tick)));
  }
  const middle = (EDGE.top + height - EDGE.bottom) / 2;
  found.push(text((EDGE.left + width - EDGE.right) / 2, height - 6, "middle", `assumed utility of ${x}`, { class: "title" }));
  found.push(text(12, middle, "middle", `assumed utility of ${y}`, { class: "title", transform: `rotate(-90 12 ${middle})` }));
  return found;
}

const polyline = (points, at, props) => svg("polyline", { ...props, points: points.map((point) => at(point)).map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") });

function drawFrontier({ space, points, best }, at) {
  const line = space ?? best.map((index) => points[index]);
  const dots = line.length > DOTS_MAX ? [] : line.map((point) => svg("circle", { class: "frontier-dot", cx: at(point).x.toFixed(1), cy: at(point).y.toFixed(1), r: 2 }));
  return [polyline(line, at, { class: "frontier" }), ...dots];
}

/** All turns in order, and each party's own; many are drawn faintly. */
function drawPaths({ points, parties }, at) {
  const faint = points.length > FAINT_FROM ? " faint" : "";
  const own = parties.map((_, party) => polyline(points.filter((point) => point.party === party), at, { class: `path ${series(party)}${faint}` }));
  return [polyline(points, at, { class: `turns${faint}` }), ...own];
}

function drawPoints(points, at, width) {
  const marks = points.map((point) => {
    const { x, y } = at(point);
    const title = svg("title", {}, `turn ${point.turn}, ${point.by}: ${termsText(point.terms)}; worth ${share(point.x)} and ${share(point.y)}`);
    return svg("g", { class: `offer ${series(point.party)}`, "data-turn": point.turn, "data-x": point.x, "data-y": point.y }, title, mark(point.party, x, y));
  });
  const groups = new Map();
  for (const point of points) {
    const { x, y } = at(point);
    const key = `${Math.round(x / NEAR)} ${Math.round(y / NEAR)}`;
    if (!groups.has(key)) groups.set(key, { x, y, party: point.party, turns: [] });
    groups.get(key).turns.push(point.turn);
  }
  const all = [...groups.values()];
  const every = Math.ceil((all.length * NUMBER_WIDTH) / width);
  const numbers = all.filter((_, index) => index % every === 0 || index === all.length - 1).map(({ x, y, party, turns }) => {
    const text = turns.length > 2 ? `${turns[0]}\u2026${turns.at(-1)}` : turns.join(", ");
    // Parties write on different sides of their points, but within the picture.
    const isRight = (party % 2 === 0 || x < EDGE.left) && x < width - EDGE.right - 30;
    const [dx, dy, anchor] = [isRight ? 8 : -8, party % 2 === 0 ? -7 : 15, isRight ? "start" : "end"];
    return svg("text", { class: `number ${series(party)}`, x: (x + dx).toFixed(1), y: (y + dy).toFixed(1), "text-anchor": anchor }, text);
  });
  return [...marks, ...numbers];
}

/** Rings around the agreement and around the offer with the greatest product. */
function drawMarks({ points, nash: best }, at) {
  const found = [];
  const ring = (point, kind, r) => found.push(svg("circle", { class: `ring ${kind}`, cx: at(point).x.toFixed(1), cy: at(point).y.toFixed(1), r, "data-turn": point.turn }));
  if (points[best]) ring(points[best], "nash", 13);
  const agreed = points.find((point) => point.isAgreed);
  if (agreed) ring(agreed, "agreement", 9);
  return found;
}

/** What can be seen, in words. */
function spoken({ x, y, points, nash: best }) {
  const agreed = points.find((point) => point.isAgreed);
  const at = (point) => `${share(point.x)} for ${x} and ${share(point.y)} for ${y}`;
  return [
    `Assumed utilities of ${plural(points.length, "offer")}`, `the first is worth ${at(points[0])}, the last ${at(points.at(-1))}`,
    ...(agreed ? [`agreed was turn ${agreed.turn}, worth ${at(agreed)}`] : []), ...(points[best] ? [`the greatest product is that of turn ${points[best].turn}`] : []),
  ].join("; ");
}

/** What the picture rests on, in sentences. */
function note({ issues, points, space, nash: best, x, y, wishes }, { left_out: missing }) {
  const count = outcomes(issues);
  const line = points.length > 2 && points.every((point) => Math.abs(point.x + point.y - 1) < 1e-6);
  const found = [];
  if (line) found.push("With opposed wishes of equal weight every offer lies on one line: what one gains the other loses. Other weights, or guessed ones, show more.");
  if (space) found.push(`The frontier is that of the outcome space, ${plural(count, "outcome")}${isStepped(issues) ? `, ranges in ${RANGE_STEPS} steps` : ""}.`);
  else found.push(count === undefined ? "The frontier is that of the offers made: which values there are is known only as far as offers show it." : "The frontier is that of the offers made: there are too many outcomes to look at.");
  if (points[best]) found.push(`Of the offers that of turn ${points[best].turn} has the greatest product, ${share(points[best].x)} \u00d7 ${share(points[best].y)} = ${share(points[best].x * points[best].y)}, with nothing for no agreement: reservation values are sealed too.`);
  else found.push("No offer is worth something to both.");
  for (const party of [x, y]) {
    if ([...wishes.get(party).values()].every((wish) => wish.weight === 0)) found.push(`All weights of ${party} are 0: its issues count alike.`);
  }
  if (missing > 0) found.push("The journal left out entries, so offers may be missing.");
  return found.join(" ");
}

function drawLegend({ parties, points }) {
  const entry = (symbol, text) => el("li", {}, symbol, text);
  const symbol = (...content) => svg("svg", { class: "symbol", width: 16, height: 16, "aria-hidden": "true" }, ...content);
  const entries = parties.map((party, index) => {
    const found = entry(symbol(mark(index, 8, 8)), party);
    found.firstElementChild.classList.add(series(index));
    return found;
  });
  entries.push(entry(symbol(svg("line", { class: "turns", x1: 0, x2: 16, y1: 8, y2: 8 })), "turns in order, with their numbers"));
  if (points.some((point) => point.isAgreed)) entries.push(entry(symbol(svg("circle", { class: "ring agreement", cx: 8, cy: 8, r: 6 })), "agreement"));
  entries.push(entry(symbol(svg("circle", { class: "ring nash", cx: 8, cy: 8, r: 6 })), "greatest product (Nash) of the offers"));
  entries.push(entry(symbol(svg("line", { class: "frontier", x1: 0, x2: 16, y1: 8, y2: 8 })), "Pareto frontier"));
  byId("plane-legend").replaceChildren(...entries);
}

function drawTable({ points, x, y, best, nash: greatest }) {
  say(byId("plane-head-x"), x);
  say(byId("plane-head-y"), y);
  const efficient = new Set(best);
  const marks = (point, index) => [point.isAgreed ? "agreement" : "", index === greatest ? "Nash" : "", efficient.has(index) ? "frontier of the offers" : ""].filter(Boolean).join(", ");
  rows(byId("plane-list"), points.map((point, index) => ({ ...point, marks: marks(point, index) })), {
    key: (point) => `${point.turn} ${point.by}`,
    head: (point) => String(point.turn),
    cells: (point) => [point.by, termsText(point.terms), share(point.x), share(point.y), share(point.x * point.y), point.marks],
  });
}
