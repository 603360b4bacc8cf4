// Draws a snapshot (`GET /v1/console`).

import { bar, byId, chart, count, duration, el, fill, list, plural, rate, say, words } from "/console/dom.js";

/** Points over which a line stretches while there are fewer. */
const POINTS_MIN = 40;

/** What the lists do when a row is chosen. */
export const actions = { open: () => {}, make_default: () => {}, ask_token: () => {} };

export function draw(snapshot, isHeld) {
  drawNumbers(snapshot);
  drawOutcomes(snapshot.totals);
  const named = snapshot.named;
  drawLists(snapshot, isHeld);
  drawPolicies(snapshot, named);
  drawEngines(snapshot, named);
  drawAgents(snapshot, named);
  say(byId("gateway"), named ? named.gateway : "");
}

function drawNumbers({ totals, per_s, round, history }) {
  say(byId("open"), count(totals.open));
  say(byId("open-aside"), totals.open === 1 ? "negotiation" : "negotiations");
  say(byId("rounds"), rate(per_s.ended));
  say(byId("awards"), count(totals.awards));
  say(byId("awards-aside"), `${rate(per_s.awards)} per second`);
  say(byId("offers"), count(totals.offers));
  say(byId("offers-aside"), `${rate(per_s.offers)} per second`);
  say(byId("unacknowledged"), count(totals.unacknowledged));
  for (const quantile of ["p50", "p95", "p99"]) {
    say(byId(quantile), round.count ? duration(round[`${quantile}_us`]) : "-");
  }
  const rounds = history.map((point) => point.ended_per_s);
  chart(byId("rounds-chart"), rounds, POINTS_MIN);
  say(byId("rounds-aside"), `${count(totals.ended)} ended, peak ${rate(Math.max(0, ...rounds))} per second`);
  const p95 = history.map((point) => point.p95_us);
  chart(byId("latency-chart"), p95, POINTS_MIN);
  say(byId("latency-aside"), round.count ? `${plural(round.count, "round")}; the line is p95` : "no round in the last minute");
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

function drawLists(snapshot, isHeld) {
  const { named, at, engines } = snapshot;
  const lists = [
    { name: "open", rows: 8, items: named?.open, empty: "No negotiation is open.", make: openRow },
    { name: "ended", rows: 14, items: named?.ended, empty: "Nothing has ended yet.", make: endedRow },
  ];
  for (const { name, rows, items, empty, make } of lists) {
    const container = byId(`${name}-list`);
    const note = byId(`${name}-empty`);
    const held = byId(`${name}-title`).querySelector(".held");
    const hold = Boolean(items) && container.firstChild !== null && isHeld(container);
    held.hidden = !hold;
    if (hold) {
      const shown = new Set([...container.children].map((row) => row.dataset.key));
      for (const item of items.filter((item) => shown.has(item.negotiation))) {
        make.update([...container.children].find((row) => row.dataset.key === item.negotiation), item, at);
      }
      continue;
    }
    const shown = (items ?? []).slice(0, rows);
    list(container, shown, {
      key: (item) => item.negotiation,
      create: make.create,
      update: (row, item) => make.update(row, item, at),
    });
    note.hidden = shown.length > 0;
    if (!items) needToken(note, "Names are for administrators.");
    else say(note, engines ? empty : "No engine is heard, so nothing is known.");
  }
}

/** Says that a token is needed, with the button that asks for it. */
function needToken(note, text) {
  if (note.querySelector("button")) return;
  note.replaceChildren(`${text} `, el("button", { type: "button", onclick: () => actions.ask_token() }, "Enter token"));
}

const row = (item) =>
  el("li", {},
    el("button", { type: "button", class: "row", onclick: (event) => actions.open(item.negotiation, event.currentTarget) },
      el("span", { class: "id" }, item.negotiation), el("span", { class: "chip" }), el("span", { class: "aside" }),
      el("span", { class: "aside end" })));

const openRow = {
  create: row,
  update: (node, item) => {
    const [, phase, offers, age] = node.firstElementChild.children;
    say(phase, words(item.phase));
    phase.dataset.tone = "live";
    say(offers, item.protocol === "alternating_offers" ? plural(item.offers, "offer") : `${count(item.offers)} of ${count(item.invited)} offered`);
    say(age, duration(item.age_us));
  },
};

const endedRow = {
  create: row,
  update: (node, item, at) => {
    const [, outcome, offers, age] = node.firstElementChild.children;
    say(outcome, words(item.outcome));
    outcome.dataset.tone = tone(item.outcome);
    say(offers, `${plural(item.offers, "offer")}, ${plural(item.awards, "award")}`);
    say(age, `${duration(item.elapsed_us)}, ${ago(at - item.at)}`);
  },
};

const ago = (us) => (us < 1_500_000 ? "just now" : `${duration(us).replace(/\.\d/, "")} ago`);

/** How an outcome is coloured. */
export function tone(outcome) {
  if (outcome === "completed" || outcome === "agreement") return "good";
  return outcome === "aborted" || outcome === "timeout" ? "bad" : "fair";
}

function drawPolicies(snapshot, named) {
  const note = byId("policies-empty");
  const policies = named?.policies ?? [];
  note.hidden = policies.length > 0;
  if (!named) needToken(note, `${plural(snapshot.policies, "policy", "policies")}; names and the switch are for administrators.`);
  else say(note, "The exchange has no policy.");
  // Those that can be switched to come first. The default keeps its place, so that a switch moves nothing away.
  const sorted = [...policies].sort((one, other) => other.can_be_default - one.can_be_default);
  list(byId("policies-list"), sorted, {
    key: (policy) => policy.id,
    create: (policy) =>
      el("li", { class: "policy" }, el("span", { class: "name" }, policy.id), el("span", { class: "chip" }),
        el("button", { type: "button", "aria-label": `Make ${policy.id} the default`, onclick: () => actions.make_default(policy.name, policy.id) },
          "Make default")),
    update: (node, policy) => {
      const [, chip, button] = node.children;
      say(chip, policy.is_default ? "default" : policy.can_be_default ? "" : "for bargains only");
      chip.hidden = chip.textContent === "";
      chip.dataset.tone = policy.is_default ? "good" : "quiet";
      const wasFocused = document.activeElement === button;
      button.hidden = policy.is_default || !policy.can_be_default;
      node.dataset.default = policy.is_default;
      if (wasFocused && button.hidden) {
        byId("policies-list").querySelector("button:not([hidden])")?.focus();
      }
    },
  });
}

function drawEngines(snapshot, named) {
  const missing = snapshot.lanes - snapshot.lanes_owned;
  const lanes = missing ? `, ${plural(missing, "lane")} without an owner` : ", every lane owned";
  const line = byId("lanes-line");
  say(line, `${plural(snapshot.engines, "engine")} heard, ${plural(snapshot.lanes, "lane")}${lanes}`);
  line.dataset.tone = missing ? "bad" : "";
  list(byId("engines-list"), named?.engines ?? [], {
    key: (engine) => engine.engine,
    create: (engine) =>
      el("li", { class: "engine" }, el("span", { class: "name" }, engine.engine), el("span", { class: "lanes" }),
        el("span", { class: "quiet" })),
    update: (node, engine) => {
      const [, owned, figures] = node.children;
      say(owned, engine.owned.length ? `${engine.owned.length === 1 ? "lane" : "lanes"} ${engine.owned.join(", ")}` : "stands by");
      const late = engine.heard_ms_ago > 2500 ? `, silent for ${duration(engine.heard_ms_ago * 1000)}` : "";
      say(figures, `${count(engine.open)} open, ${rate(engine.ended_per_s)} rounds/s, ${count(engine.unacknowledged)} unacknowledged${late}`);
    },
  });
}

function drawAgents(snapshot, named) {
  const agents = named?.agents ?? [];
  const more = snapshot.agents - agents.length;
  say(byId("agents-line"), named && agents.length && more > 0
    ? `${plural(snapshot.agents, "agent")} registered; the first ${agents.length} by name`
    : `${plural(snapshot.agents, "agent")} registered`);
  list(byId("agents-list"), agents, {
    key: (agent) => agent.agent,
    create: () => el("li"),
    update: (node, agent) => {
      say(node, agent.agent);
      node.title = agent.capabilities.length ? `can ${agent.capabilities.join(", ")}` : "declares no capability";
    },
  });
}
