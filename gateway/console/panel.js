// A panel's part of its page: its rounds with whom they asked, and what was found, as its initiator is told it.

import { bar, byId, count, el, fill, link, plural, say, words } from "/console/dom.js";

const strong = (text) => el("strong", {}, text);
const quiet = (text) => el("span", { class: "quiet" }, text);
/** Units of importance in 1. */
const E12 = 1e12;
/** What members are asked for in a round. */
const ASKED = {
  answer: ["Round", "seats are asked"], rank: ["Selection after round", "the ranker is asked"],
  review: ["Reviews of round", "reviewers are asked"],
};

/** A text; empty where only administrators are shown it. */
const quoted = (text) => (text ? el("q", {}, text) : "");

const agreement = ({ agreed, of, round }) => `${count(agreed)} of ${count(of)} agree in round ${count(round)}`;

/** Kind, tone and content of what a round begins with. */
export function drawAsked({ round, kind }) {
  const [of, who] = ASKED[kind] ?? ["Round", words(kind)];
  return ["asked", "", strong(`${of} ${count(round)}`), ` ${who}`];
}

/** Kind, tone and content of what was found. */
export function drawFound(finding) {
  return ["found", "good", strong("Finding"), " ", quoted(finding.answer), quiet(` ${agreement(finding)}`)];
}

/** Rounds and finding beside the steps; hidden where nobody was asked. */
export class PanelRounds {
  draw({ entries }) {
    const rounds = roundsOf(entries);
    const finding = entries.findLast((entry) => entry.what === "found");
    byId("finding-panel").hidden = rounds.length === 0 && !finding;
    byId("finding-rounds").replaceChildren(...rounds.map(drawRound));
    byId("finding").hidden = !finding;
    if (finding) drawFinding(finding);
  }

  close() {
    byId("finding-panel").hidden = true;
    byId("finding-rounds").replaceChildren();
    byId("finding-seats").replaceChildren();
  }
}

/** Whom each round asked, and how many of them replied: no more is known of a round that runs. */
function roundsOf(entries) {
  const rounds = [];
  for (const entry of entries) {
    const last = rounds.at(-1);
    if (entry.what === "asked") rounds.push({ round: entry.round, kind: entry.kind, asked: new Set(), replied: new Set() });
    else if (last && entry.what === "sent" && entry.act === "ask") last.asked.add(entry.to);
    else if (last?.asked.has(entry.from) && entry.act === "answer" && entry.disposition === "ok") last.replied.add(entry.from);
  }
  return rounds;
}

function drawRound({ round, kind, asked, replied }) {
  const [of] = ASKED[kind] ?? ["Round"];
  return el("li", {}, `${of} ${count(round)} `, quiet(`${count(asked.size)} asked, ${count(replied.size)} replied`));
}

function drawFinding(finding) {
  const { answers, ranks, reviews, answered } = finding.calls;
  const further = [ranks && `${count(ranks)} to the ranker`, reviews && `${count(reviews)} to reviewers`].filter(Boolean);
  const asks = [`${plural(answers, "ask")} to seats`, ...further, `${count(answered)} answered`].join(", ");
  byId("finding-answer").replaceChildren(quoted(finding.answer));
  say(byId("finding-line"), `${agreement(finding)}, stopped by ${words(finding.stopped)}; ${asks}`);
  const most = Math.max(1, ...finding.panelists.map((seat) => seat.total_e12));
  byId("finding-seats").replaceChildren(...finding.panelists.map((seat) => drawSeat(seat, most)));
}

function drawSeat({ agent, answer, agreed, total_e12: total, relative_ppm: relative }, most) {
  const said = answer === null ? quiet("none") : quoted(answer);
  return el("tr", { class: agreed ? "winner" : undefined },
    el("th", { scope: "row" }, link(agent, "agents", agent)), el("td", { class: "said" }, said), el("td", {}, agreed ? "agrees" : ""),
    el("td", { class: "wide" }, fill(bar(), total / most)), el("td", { class: "figure" }, (total / E12).toFixed(3)),
    el("td", { class: "figure" }, (relative / 1e6).toFixed(2)));
}
