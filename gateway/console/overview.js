// The overview, the lists of negotiations, and the line that says how the exchange stands.

import { briefDuration, histogram, legend, overTime } from "/console/charts.js";
import { bar, brief, byId, count, duration, el, fill, link, list, plural, rate, route, rows, say, tone, words } from "/console/dom.js";

/** An engine that was last heard so long ago is late, in milliseconds: it tells something each second. */
const LATE_MS = 2500;
/** Rows of the short lists and of the long ones. */
const [FEW, MANY] = [{ open: 8, ended: 11 }, { open: 48, ended: 48 }];

/** What the page does when a name is missing. */
export const actions = { ask_token: () => {} };

let switches = [];
const charts = {
  rounds: overTime(byId("rounds-chart"), (value) => `${brief(value)}/s`, () => switches.map((one) => one.at / 1e6)),
  byPolicy: overTime(byId("policy-rounds-chart"), (value) => `${brief(value)}/s`, () => switches.map((one) => one.at / 1e6)),
  latency: overTime(byId("latency-chart"), briefDuration),
  histogram: histogram(byId("histogram-chart")),
};

/** Draws what every page shows. */
export function drawState(snapshot) {
  const { named } = snapshot;
  say(byId("gateway"), named ? named.gateway : "");
  const alerts = alertsOf(snapshot);
  const present = snapshot.present === undefined ? "" : `, ${count(snapshot.present)} present`;
  const gateways = snapshot.gateways ?? 1;
  const lanes = snapshot.lanes_owned === snapshot.lanes ? "each with an owner" : `${snapshot.lanes_owned} with an owner`;
  say(byId("state-line"), [
    plural(gateways, "gateway"), plural(snapshot.engines, "engine"), `${plural(snapshot.lanes, "lane")}, ${lanes}`,
    `${plural(snapshot.agents, "agent")} registered${present}`, alerts.length ? `${plural(alerts.length, "alert")}: ${alerts[0]}` : "no alert",
  ].join(" \u00b7 "));
  byId("state").dataset.tone = alerts.length ? "bad" : "";
  list(byId("alerts-list"), alerts, { key: (alert) => alert, create: (alert) => el("li", { class: "alert" }, alert), update: () => {} });
  rows(byId("engines-list"), named?.engines ?? [], {
    key: (engine) => engine.engine,
    head: (engine) => engine.engine,
    cells: (engine) => [
      engine.owned.length ? engine.owned.join(", ") : "stands by", count(engine.open), rate(engine.ended_per_s),
      engine.p95_us ? duration(engine.p95_us) : "-", count(engine.unacknowledged), `${duration(engine.heard_ms_ago * 1000)} ago`,
    ],
  });
  byId("engines-table").hidden = !named;
}

function alertsOf({ engines, faults, lanes, lanes_owned, named }) {
  const alerts = [];
  if (!engines) alerts.push("no engine is heard, so nothing negotiates");
  else if (lanes_owned < lanes) alerts.push(`${plural(lanes - lanes_owned, "lane")} without an owner`);
  alerts.push(...(faults ?? []));
  for (const engine of named?.engines ?? []) {
    if (engine.heard_ms_ago > LATE_MS) alerts.push(`${engine.engine} was last heard ${duration(engine.heard_ms_ago * 1000)} ago`);
    for (const fault of engine.faults ?? []) alerts.push(`${engine.engine}: ${fault}`);
  }
  return alerts;
}

export function drawOverview(snapshot, isHeld) {
  drawTiles(snapshot);
  drawRounds(snapshot);
  drawLatency(snapshot);
  drawComparison(snapshot);
  drawOutcomes(snapshot.totals);
  drawWinners(snapshot);
  drawLists(snapshot, isHeld, "", FEW);
}

export const drawNegotiations = (snapshot, isHeld) => drawLists(snapshot, isHeld, "all-", MANY);

function drawTiles({ totals, per_s, history }) {
  const least = totals.lower_bound ? "at least " : "";
  say(byId("open"), count(totals.open));
  say(byId("open-aside"), totals.open === 1 ? "negotiation" : "negotiations");
  say(byId("rounds"), rate(per_s.ended));
  say(byId("rounds-aside"), `${least}${count(totals.ended)} ended, peak ${rate(Math.max(0, ...history.map((point) => point.ended_per_s)))}/s`);
  say(byId("awards"), `${totals.lower_bound ? "\u2265 " : ""}${count(totals.awards)}`);
  const binding = totals.binding === undefined ? "" : `, ${least}${count(totals.binding)} binding`;
  say(byId("awards-aside"), `${rate(per_s.awards)}/s${binding}`);
  say(byId("offers"), `${totals.lower_bound ? "\u2265 " : ""}${count(totals.offers)}`);
  say(byId("offers-aside"), `${rate(per_s.offers)}/s`);
  say(byId("unacknowledged"), count(totals.unacknowledged));
  for (const id of ["awards", "offers", "rounds-aside"]) {
    byId(id).title = totals.lower_bound ? "A lower bound: an engine that had counted more is gone, or began anew" : "";
  }
}

/** The times of the history's points, in seconds; the newest is at most a second old. */
const times = ({ at, history }) => history.map((_, index) => Math.round(at / 1e6) - (history.length - 1 - index));

function drawRounds(snapshot) {
  switches = snapshot.named?.switches ?? [];
  const all = snapshot.history.map((point) => point.ended_per_s);
  charts.rounds.draw(["all policies"], [times(snapshot), all], `Rounds per second over the last two minutes, now ${rate(snapshot.per_s.ended)}`);
  legend(byId("rounds-legend"), switches.length ? ["all policies; dashed: the default policy changed"] : ["all policies"]);
  say(byId("default-line"), defaultLine(snapshot));
}

/** Which policy calls get that name none, and since when. */
function defaultLine({ named, at }) {
  if (!named) return "";
  const last = named.switches?.at(-1);
  return `default policy ${named.default_policy}${last ? `, before ${last.from}, changed ${ago(at - last.at)}` : ""}`;
}

/** Draws rounds per second, a line for each policy that had any. */
export function drawRoundsByPolicy(snapshot) {
  switches = snapshot.named?.switches ?? [];
  const policies = (snapshot.named?.activity?.policies ?? []).filter((one) => one.history.some((value) => value > 0));
  const names = policies.map((one) => words(one.policy));
  charts.byPolicy.draw(names, [times(snapshot), ...policies.map((one) => one.history)],
    `Rounds per second under ${plural(names.length, "policy", "policies")} over the last two minutes`);
  legend(byId("policy-rounds-legend"), names);
  say(byId("policy-rounds-line"), defaultLine(snapshot));
}

function drawWinners({ named }) {
  const agents = named?.activity?.agents ?? [];
  const all = agents.reduce((sum, agent) => sum + agent.awards, 0);
  const winners = agents.filter((agent) => agent.awards > 0).sort((one, other) => other.awards - one.awards).slice(0, 5);
  byId("winners-table").hidden = winners.length === 0;
  byId("winners-empty").hidden = winners.length > 0;
  if (!named) needToken(byId("winners-empty"), "Names are for administrators.");
  else say(byId("winners-empty"), "No award has been made yet.");
  rows(byId("winners-list"), winners, {
    key: (agent) => agent.agent,
    head: (agent) => link(agent.agent, "agents", agent.agent),
    cells: (agent) => [count(agent.awards), ...[agent.awards, agent.fair_ppm / 1e6].map((awards) => `${((awards / all) * 100).toFixed(1)} %`)],
  });
}

function drawLatency(snapshot) {
  const { history, round } = snapshot;
  const names = ["half at most (p50)", "95 of 100 at most (p95)"];
  const column = (name) => history.map((point) => point[name] || null);
  const told = round.count ? `p50 ${duration(round.p50_us)}, p95 ${duration(round.p95_us)}` : "no round";
  charts.latency.draw(names, [times(snapshot), column("recent_p50_us"), column("recent_p95_us")], `Latency over the last two minutes: ${told} in the last of them`);
  legend(byId("latency-legend"), names);
  for (const quantile of ["p50", "p95", "p99"]) {
    say(byId(quantile), round.count ? duration(round[`${quantile}_us`]) : "-");
  }
  charts.histogram(snapshot.durations ?? {}, `How long the ${plural(round.count, "round")} of the last minute took: ${told}`);
}

function drawComparison({ named }) {
  const policies = named?.activity?.policies ?? [];
  byId("compare-table").hidden = policies.length === 0;
  byId("compare-empty").hidden = policies.length > 0;
  if (!named) needToken(byId("compare-empty"), "Names are for administrators.");
  else say(byId("compare-empty"), "Nothing has ended yet.");
  rows(byId("compare-list"), policies, {
    key: (one) => one.policy,
    head: (one) => words(one.policy),
    cells: (one) => [count(one.ended), rate(one.ended_per_s), count(one.awards), ...["p50_us", "p95_us"].map((name) => (one.round.count ? duration(one.round[name]) : "-"))],
  });
}

function drawOutcomes(totals) {
  const outcomes = Object.entries(totals.ended_by_outcome).filter(([, ended]) => ended > 0);
  outcomes.sort((one, other) => other[1] - one[1]);
  byId("outcomes-empty").hidden = outcomes.length > 0;
  list(byId("outcomes-list"), outcomes, {
    key: ([outcome]) => outcome,
    create: ([outcome]) =>
      el("li", { class: "bar-row" }, el("span", { class: "name" }, words(outcome)), bar(), el("span", { class: "figure" })),
    update: (row, [, ended]) => {
      const [, share, figure] = row.children;
      fill(share, ended / Math.max(1, totals.ended));
      say(figure, count(ended));
    },
  });
}

function drawLists(snapshot, isHeld, prefix, most) {
  const { named, engines } = snapshot;
  drawList(`${prefix}open`, named?.open, openRow, most.open, snapshot, isHeld, engines ? "No negotiation is open." : "No engine is heard, so nothing is known.");
  drawList(`${prefix}ended`, named?.ended, endedRow, most.ended, snapshot, isHeld, engines ? "Nothing has ended yet." : "No engine is heard, so nothing is known.");
}

/** Shows negotiations as rows that lead to their pages. A list that somebody chooses from keeps its rows. */
export function drawList(name, items, make, most, { at }, isHeld, empty) {
  const container = byId(`${name}-list`);
  const note = byId(`${name}-empty`);
  const held = byId(`${name}-title`)?.querySelector(".held");
  const hold = Boolean(items) && container.firstChild !== null && isHeld(container);
  if (held) held.hidden = !hold;
  const known = new Set([...container.children].map((row) => row.dataset.key));
  const shown = hold ? items.filter((item) => known.has(item.negotiation)) : (items ?? []).slice(0, most);
  if (hold) {
    for (const item of shown) make.update([...container.children].find((row) => row.dataset.key === item.negotiation), item, at);
    return;
  }
  list(container, shown, { key: (item) => item.negotiation, create: make.create, update: (row, item) => make.update(row, item, at) });
  note.hidden = shown.length > 0;
  if (!items) needToken(note, "Names are for administrators.");
  else say(note, empty);
}

export function needToken(note, text) {
  if (note.querySelector("button")) return;
  note.replaceChildren(`${text} `, el("button", { type: "button", onclick: () => actions.ask_token() }, "Enter token"));
}

const rowOf = (item, ...content) => el("li", {}, el("a", { class: "row", href: route("negotiations", item.negotiation) },
  el("span", { class: "id" }, item.negotiation), el("span", { class: "chip" }), ...content));

/** How much was offered, in the word of the protocol. */
const offered = ({ protocol, offers }) => plural(offers, { alternating_offers: "proposal", english_auction: "bid" }[protocol] ?? "offer");

const openRow = {
  create: (item) => rowOf(item, el("span", { class: "aside" }), el("span", { class: "aside end" })),
  update: (node, item) => {
    const [, chip, offers, time] = node.firstElementChild.children;
    say(chip, words(item.phase));
    say(offers, `${offered(item)} of ${count(item.invited)}`);
    say(time, `${words(item.policy)}, ${duration(item.age_us)}`);
  },
};

export const endedRow = {
  create: (item) => rowOf(item, el("span", { class: "aside" }), el("span", { class: "aside end" })),
  update: (node, item, at) => {
    const [, chip, offers, time] = node.firstElementChild.children;
    say(chip, words(item.outcome));
    chip.dataset.tone = tone(item.outcome);
    const won = item.awards ? `, ${plural(item.awards, "award")}` : "";
    say(offers, item.protocol === "alternating_offers" ? offered(item) : `${offered(item)}${won}`);
    say(time, `${duration(item.elapsed_us)}, ${ago(at - item.at)}`);
  },
};

const ago = (us) => (us < 1e6 ? "just now" : `${duration(us).replace(/\.\d/, "")} ago`);
