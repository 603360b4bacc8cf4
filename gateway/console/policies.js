// The policies: what they do, which one calls get that name none, and their figures side by side.

import { histograms, legend } from "/console/charts.js";
import { byId, count, duration, el, list, plural, rate, rows, say, words } from "/console/dom.js";
import { drawRoundsByPolicy, needToken } from "/console/overview.js";

/** What the page does when a policy is chosen. */
export const actions = { make_default: () => {} };

const drawHistograms = histograms(byId("policy-latency-chart"));

export function drawPolicies(snapshot) {
  const { policies: all, named } = snapshot;
  drawRoundsByPolicy(snapshot);
  const figures = named?.activity?.policies ?? [];
  const measured = figures.filter((one) => one.round.count > 0);
  drawHistograms(measured, `What share of the rounds of ${plural(measured.length, "policy", "policies")} took how long, last minute`);
  legend(byId("policy-latency-legend"), measured.map((one) => words(one.policy)));
  const none = byId("policy-table-empty");
  none.hidden = figures.length > 0;
  if (named) say(none, "Nothing has ended yet.");
  else needToken(none, "Names are for administrators.");
  rows(byId("policy-table"), figures, {
    key: (one) => one.policy,
    head: (one) => words(one.policy),
    cells: (one) => [
      count(one.ended), rate(one.ended_per_s), count(one.awards), rate(one.offers / Math.max(1, one.ended)),
      ...["p50_us", "p95_us", "p99_us"].map((name) => (one.round.count ? duration(one.round[name]) : "-")),
    ],
  });
  drawList(all, named);
}

function drawList(all, named) {
  const policies = named?.policies ?? [];
  const note = byId("policies-empty");
  note.hidden = policies.length > 0;
  if (!named) needToken(note, `${plural(all, "policy", "policies")}; names and the switch are for administrators.`);
  else say(note, "The exchange has no policy.");
  // Those that can be switched to come first. The default keeps its place, so that a switch moves nothing away.
  const sorted = [...policies].sort((one, other) => other.can_be_default - one.can_be_default);
  list(byId("policies-list"), sorted, {
    key: (policy) => policy.id,
    create: (policy) => el("li", { class: "policy" },
      el("details", {}, el("summary", {}, el("span", { class: "name" }, policy.id)), el("p", { class: "quiet about" })),
      el("span", { class: "chip" }),
      el("button", { type: "button", "aria-label": `Make default: ${policy.id}`, onclick: () => actions.make_default(policy.name, policy.id) }, "Make default")),
    update: (node, policy) => {
      const [details, chip, button] = node.children;
      say(details.lastElementChild, policy.about ?? "");
      say(chip, policy.is_default ? "default" : policy.can_be_default ? "" : "for bargains only");
      chip.hidden = chip.textContent === "";
      chip.dataset.tone = policy.is_default ? "good" : "quiet";
      const wasFocused = document.activeElement === button;
      button.hidden = policy.is_default || !policy.can_be_default;
      node.dataset.default = policy.is_default;
      if (wasFocused && button.hidden) details.firstElementChild.focus();
    },
  });
}
