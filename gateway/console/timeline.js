// The page of one negotiation, step by step, from its journal (`GET /v1/console/negotiations/{id}`).

import { AuctionPanel, asBidding, bidders, bidsOf, drawBid, drawBiddingEnd, isAuction } from "/console/auction.js";
import { legend, overTurns } from "/console/charts.js";
import { amount, bar, byId, count, duration, el, facts, fill, link, plural, problem, say, termsText, tone, words } from "/console/dom.js";
import { FamilyTree, parentOf } from "/console/family.js";
import { PanelRounds, drawAsked, drawFound } from "/console/panel.js";
import { Plane } from "/console/plane.js";
import { TeamPanel, drawConcluded, drawFloor, isToldByStep } from "/console/team.js";
import { offersOf, partiesOf, rulesOf } from "/console/utility.js";

const REFRESH_MS = 1000;
/** Deliveries of one act this close together, in microseconds, are told in one line. */
const TOGETHER_US = 250_000;
/** Who or what chose. */
const CAUSES = {
  score: "by score", initiator: "by the initiator", initiator_silent: "by score, since the initiator was silent",
  re_award: "for a runner-up, since the award before fell through",
};
/** What carried an award out. */
const ROUTINES = {
  native: "a function", http: "a service", wasm: "a WebAssembly module", model: "a language model", language: "natural language",
};
/** So few deliveries are shown without being asked for. */
const FEW = 3;
/** So many issues of a bargain are drawn. */
const ISSUES_MAX = 4;
/** So many values of an issue are listed. */
const VALUES_MAX = 12;

export class Timeline {
  #body = byId("timeline-body");
  #shown = null;
  #seen = "";
  #timer = 0;
  #request;
  #viewer;
  #scoring = new Map();
  #terms = new Map();
  #charts = [];
  #plane = new Plane();
  #team = new TeamPanel();
  #rounds = new PanelRounds();
  #auction = new AuctionPanel();
  #family = new FamilyTree();

  /** `request(path)` fetches with the token, `viewer()` says whose it is. */
  constructor(request, viewer) {
    this.#request = request;
    this.#viewer = viewer;
  }

  /** Opens a page; `assumed` is what its address says of the utility plane. */
  open(id, assumed = "") {
    this.close();
    this.#plane.assume(assumed);
    this.#family.open(id);
    this.#shown = id;
    say(byId("timeline-title"), id);
    say(byId("timeline-about"), "asking its engine");
    this.#refresh(id);
  }

  close() {
    clearTimeout(this.#timer);
    this.#shown = null;
    this.#seen = "";
    this.#terms = new Map();
    this.#body.replaceChildren();
    facts(byId("timeline-facts"), []);
    for (const chart of this.#charts) chart.destroy();
    this.#charts = [];
    byId("bargain-charts").replaceChildren();
    byId("timeline-ranking").replaceChildren();
    byId("bargain-panel").hidden = true;
    this.#plane.close();
    this.#team.close();
    this.#rounds.close();
    this.#auction.close();
    this.#family.close();
    byId("ranking-panel").hidden = true;
  }

  /** Takes what is open and what ended lately, for the family of the page, and what each policy scores. */
  see(snapshot) {
    this.#family.see(snapshot);
    this.#scoring = new Map((snapshot.named?.policies ?? []).map(({ id, about }) => [id, about.match(/Scores offers by [^.]*\./)?.[0] ?? ""]));
  }

  /** Asks again: the token has changed. */
  again(assumed) {
    if (this.#shown) this.open(this.#shown, assumed);
  }

  /** The address assumes something else of the page that is open. */
  assume(assumed) {
    this.#plane.assume(assumed);
  }

  async #refresh(id) {
    let again = true;
    try {
      const response = await this.#request(`/v1/console/negotiations/${encodeURIComponent(id)}`);
      const journal = response.ok ? await response.json() : null;
      if (journal && JSON.stringify(journal.entries) !== this.#seen) await this.#learnTerms(journal);
      if (this.#shown !== id) return;
      if (journal) again = this.#show(journal);
      else again = await this.#refuse(response);
    } catch {
      if (this.#shown !== id) return;
      this.#note("The gateway does not answer; asking again.");
    }
    if (again && this.#shown === id) this.#timer = setTimeout(() => this.#refresh(id), REFRESH_MS);
  }

  /** Asks for the terms of offers that the viewer is told until the end: the initiator all of them, a contractor its own. */
  async #learnTerms({ negotiation, entries }) {
    const viewer = this.#viewer();
    const ranked = decisionOf(entries)?.ranked ?? [];
    if (!ranked.length || ![initiatorOf(negotiation), ...ranked.map(({ contractor }) => contractor)].includes(viewer)) return;
    const response = await this.#request(`/v1/negotiations/${encodeURIComponent(negotiation)}`);
    for (const { contractor, terms } of response.ok ? (await response.json()).offers : []) this.#terms.set(contractor, terms);
  }

  /** Says why there is no journal; true when it is worth asking again. */
  async #refuse(response) {
    if (response.status === 404) {
      this.#note("No engine remembers this negotiation: it ended too long ago, its lane has changed hands, or there was none. What was decided stands in the log.");
      return false;
    }
    if (response.status === 401 || response.status === 403) {
      this.#note("A journal holds every offer: it needs an administrator's token.");
      return false;
    }
    this.#note(`${await problem(response)}.`);
    return true;
  }

  #note(text) {
    say(byId("timeline-about"), text);
  }

  /** Draws what is new; true while more may happen. */
  #show(journal) {
    const about = summary(journal);
    this.#note(about.text);
    const seen = JSON.stringify(journal.entries);
    if (seen !== this.#seen) {
      this.#seen = seen;
      this.#drawSteps(journal);
      this.#drawRanking(journal);
      this.#drawTurns(journal);
      this.#plane.draw(journal);
      this.#team.draw(journal);
      this.#rounds.draw(journal);
      this.#auction.draw(journal);
      this.#family.draw(journal);
    }
    facts(byId("timeline-facts"), factsOf(journal, about));
    return !about.isOver;
  }

  #drawSteps(journal) {
    const opened = new Set([...this.#body.querySelectorAll("details[open]")].map((node) => node.dataset.key));
    const closed = new Set([...this.#body.querySelectorAll("details:not([open])")].map((node) => node.dataset.key));
    const focused = document.activeElement?.parentElement?.dataset?.key;
    this.#body.replaceChildren(el("ol", { class: "steps" }, ...steps(journal).map(draw)));
    for (const node of this.#body.querySelectorAll("details")) {
      if (opened.has(node.dataset.key)) node.open = true;
      if (closed.has(node.dataset.key)) node.open = false;
      if (focused && focused === node.dataset.key) node.querySelector("summary").focus();
    }
  }

  /** The offers of the last decision, best first, and why that is the order. */
  #drawRanking({ entries }) {
    const decided = decisionOf(entries);
    byId("ranking-panel").hidden = !decided;
    if (!decided) return;
    const isBidding = isAuction(entries);
    say(byId("ranking-title"), isBidding ? "Bidders, the last to bid first" : "Offers by score");
    if (isBidding) return byId("timeline-ranking").replaceChildren(bidders(decided, bidsOf(entries), this.#terms));
    const called = entries.find((entry) => entry.what === "called");
    const sealed = called?.protocol === "contract_net" && this.#terms.size === 0 ? " Until the end the initiator is told all terms, a contractor its own." : "";
    const why = el("p", { class: "quiet" }, `${this.#scoring.get(called?.policy) ?? ""}${sealed}`);
    byId("timeline-ranking").replaceChildren(why, ranking(decided, this.#terms));
  }

  /** What was proposed, issue by issue, over the turns. */
  #drawTurns({ entries }) {
    const offers = offersOf(entries);
    byId("bargain-panel").hidden = offers.length === 0;
    if (offers.length === 0) return;
    const parties = partiesOf(offers, rulesOf(entries)).filter((party) => offers.some((offer) => offer.by === party));
    const issues = issuesOf(offers).slice(0, ISSUES_MAX);
    while (this.#charts.length < issues.length) {
      const box = el("div", { class: "chart" });
      byId("bargain-charts").append(el("h4"), box);
      this.#charts.push(overTurns(box, (value) => valueText(this.#issues?.[this.#charts.findIndex((one) => one.box === box)], value)));
      this.#charts.at(-1).box = box;
    }
    this.#issues = issues;
    issues.forEach((issue, index) => {
      say(byId("bargain-charts").querySelectorAll("h4")[index], words(issue.name));
      const columns = parties.map((party) => offers.map((offer) => (offer.by === party ? numeric(issue, offer.terms[issue.name]) : null)));
      const last = offers.at(-1);
      this.#charts[index].draw(parties, [offers.map((offer) => offer.turn), ...columns],
        `${words(issue.name)} over ${plural(offers.length, "offer")}; the last, of ${last.by}, is ${numeric(issue, last.terms[issue.name]) ?? "open"}`);
    });
    legend(byId("bargain-legend"), parties);
  }

  #issues = [];
}

const initiatorOf = (negotiation) => negotiation.split("~")[0];
const decisionOf = (entries) => entries.findLast((entry) => entry.what === "decided" && entry.ranked.length > 0);

/** The issues of the offers: those with numbers first; of texts, the values in the order in which they came. */
function issuesOf(offers) {
  const names = [...new Set(offers.flatMap((offer) => Object.keys(offer.terms)))];
  const issues = names.map((name) => {
    const values = offers.map((offer) => offer.terms[name]).filter((value) => value !== undefined);
    const isNumber = values.every((value) => typeof value === "number");
    return { name, isNumber, values: [...new Set(values.map(String))] };
  });
  return issues.sort((one, other) => other.isNumber - one.isNumber);
}

function numeric(issue, value) {
  if (value === undefined) return null;
  // A price is told in millionths.
  return issue.isNumber ? value / (issue.name === "price" ? 1e6 : 1) : issue.values.indexOf(String(value));
}

function valueText(issue, value) {
  if (!issue) return "";
  return issue.isNumber ? new Intl.NumberFormat("en", { notation: "compact" }).format(value) : (issue.values[value] ?? "");
}

/** An issue and its values, as the rules have them; of an issue with very many values none are told. */
function issueText({ name, min, max, values }) {
  if (!values) return `${words(name)} ${amount(name, min)} to ${amount(name, max)}`;
  const shown = values.length > VALUES_MAX ? [...values.slice(0, VALUES_MAX), "\u2026"] : values;
  return shown.length ? `${words(name)} ${shown.map((value) => (typeof value === "number" ? amount(name, value) : value)).join("/")}` : words(name);
}

/** What is known of it, in terms. */
function factsOf(journal, about) {
  const { entries } = journal;
  const called = entries.find((entry) => entry.what === "called");
  const ended = entries.findLast((entry) => entry.what === "ended");
  const won = entries.findLast((entry) => entry.what === "committed");
  const pinned = entries.findLast((entry) => entry.what === "decided" && entry.documents?.length)?.documents.join(", ");
  const reported = entries.findLast((entry) => entry.what === "reported");
  const valid = entries.filter((entry) => entry.what === "message" && entry.act === "offer" && entry.disposition === "ok").length;
  const hasOffers = !["team", "panel", "english_auction"].includes(called?.protocol);
  const initiator = initiatorOf(journal.negotiation);
  const parent = parentOf(journal.negotiation);
  return [
    ["State", ended ? words(ended.outcome) : "open"], ["Initiator", link(initiator, "agents", initiator)],
    ["Part of", parent && link(parent, "negotiations", parent)],
    ["Protocol", called && words(called.protocol)], ["Policy", called && called.policy !== called.protocol ? called.policy : ""],
    ["Called", called && `${plural(called.invited, "agent")}${called.left_out ? `, ${count(called.left_out)} left out` : ""}`],
    ["Offers that counted", hasOffers ? `${journal.left_out ? "at least " : ""}${count(valid)}` : ""], ["Binding with", won && link(won.contractor, "agents", won.contractor)],
    ["Document", pinned && code(pinned)], ["Carried out by", reported?.routine && (ROUTINES[reported.routine.kind] ?? words(reported.routine.kind))],
    ["Took", ended && duration(ended.elapsed_us)], ["Unacknowledged", ended && about.waiting ? count(about.waiting) : ""], ["Engine", journal.engine],
    ["Began", entries.length ? new Date(entries[0].at / 1000).toLocaleTimeString("en-GB") : ""],
  ];
}

/** The journal in a line, and whether nothing more can happen. */
function summary({ entries, engine, unacknowledged }) {
  const first = entries.find((entry) => entry.what === "called");
  const last = entries.find((entry) => entry.what === "ended");
  const waiting = unacknowledged ?? 0;
  const policy = first && first.policy !== first.protocol ? `${first.policy}, ` : "";
  const kind = first ? `${words(first.protocol)}, ${policy}` : "";
  const state = last ? `${words(last.outcome)} after ${duration(last.elapsed_us)}` : "open";
  const rest = last && waiting ? `, ${plural(waiting, "delivery", "deliveries")} unacknowledged` : "";
  return { text: `${kind}${state}${rest}; from the memory of ${engine}`, isOver: Boolean(last) && waiting === 0, waiting };
}

/** Every delivery with what became of it. */
function deliveries(entries) {
  const byDelivery = new Map();
  for (const entry of entries) {
    if (entry.what === "sent") byDelivery.set(entry.delivery, { sent: entry });
    else if (entry.what === "acknowledged" || entry.what === "given_up") {
      const one = byDelivery.get(entry.delivery) ?? {};
      one[entry.what] = entry;
      byDelivery.set(entry.delivery, one);
    }
  }
  return [...byDelivery.values()];
}

/** The entries as steps: deliveries of one act together, everything else one by one. */
function steps({ entries, gap, left_out: missing }) {
  const paired = new Map(deliveries(entries).filter((one) => one.sent).map((one) => [one.sent.delivery, one]));
  const began = entries[0]?.at ?? 0;
  const found = [];
  const latest = new Map();
  // Of a bargain's offer the entry with its terms says all.
  const isBargain = entries.some((entry) => entry.what === "proposed");
  const isTeam = entries.some((entry) => entry.what === "floor");
  const bids = isAuction(entries) ? bidsOf(entries) : null;
  for (const [index, entry] of entries.entries()) {
    if (gap?.from === index) found.push({ after: entry.at - began, entry: { what: "left_out", missing, between: gap.to - gap.from } });
    const isAnswer = entry.what === "acknowledged" || entry.what === "given_up";
    if (isAnswer && paired.has(entry.delivery)) continue;
    if (isBargain && entry.what === "message" && entry.act === "offer" && entry.disposition === "ok") continue;
    if (isTeam && isToldByStep(entry)) continue;
    if (entry.what !== "sent") {
      const told = bids ? asBidding(entry, bids) : entry;
      const what = isTeam && entry.what === "decided" ? "seated" : told?.what;
      if (told) found.push({ after: entry.at - began, entry: { ...told, what } });
      continue;
    }
    let group = latest.get(entry.act);
    if (!group || entry.at - group.last > TOGETHER_US) {
      group = { after: entry.at - began, act: entry.act, key: entry.delivery, deliveries: [] };
      latest.set(entry.act, group);
      found.push(group);
    }
    group.last = entry.at;
    group.deliveries.push(paired.get(entry.delivery));
  }
  return found;
}

function draw(step) {
  const [kind, tint, ...content] = step.deliveries ? drawDeliveries(step) : drawEntry(step.entry);
  const time = el("span", { class: "time" }, `+${duration(step.after)}`);
  return el("li", { "data-kind": kind, "data-tone": tint }, time, el("div", { class: "what" }, ...content));
}

const strong = (text) => el("strong", {}, text);
const code = (text) => el("span", { class: "id" }, text);
const quiet = (text) => el("span", { class: "quiet" }, text);
const score = (ppm) => (ppm / 10_000).toFixed(2);

function drawDeliveries({ act, key, deliveries: all }) {
  const acknowledged = all.filter((one) => one.acknowledged);
  const given_up = all.filter((one) => one.given_up).length;
  const slowest = Math.max(0, ...acknowledged.map((one) => one.acknowledged.at - one.sent.at));
  const open = all.filter(isWaiting).length;
  const told = [
    acknowledged.length === all.length ? "acknowledged" : acknowledged.length && `${acknowledged.length} acknowledged`,
    open && `${open} waiting`,
    given_up && `${given_up} given up`,
    acknowledged.length && `slowest ${duration(slowest)}`,
  ].filter(Boolean).join(", ");
  const agents = new Set(all.map((one) => one.sent.to)).size;
  const many = agents < all.length ? `, ${count(all.length)} deliveries,` : "";
  const to = agents === 1 ? code(all[0].sent.to) : plural(agents, "agent");
  const heading = el("summary", {}, strong(act === "ack" ? "receipt" : words(act)), `${many} to `, to, " ", quiet(told));
  const body = el("ul", { class: "deliveries" }, ...all.map(drawDelivery));
  const details = el("details", { "data-key": key }, heading, body);
  details.open = all.length <= FEW;
  return ["sent", given_up ? "bad" : open ? "fair" : "", details];
}

const isWaiting = ({ sent, acknowledged, given_up }) => !sent.settled && !acknowledged && !given_up;

function drawDelivery({ sent, acknowledged, given_up }) {
  let fate = sent.settled ? "sent" : "waits for its acknowledgement";
  if (acknowledged) {
    const tries = acknowledged.attempts > 1 ? `, sent ${acknowledged.attempts} times` : "";
    fate = `acknowledged after ${duration(Math.max(0, acknowledged.at - sent.at))}${tries}`;
  }
  if (given_up) fate = `given up: ${words(given_up.reason)}`;
  return el("li", { class: acknowledged ? "acked" : "" }, code(sent.to), " ", quiet(fate));
}

/** Kind, tone and content of one entry. */
function drawEntry(entry) {
  switch (entry.what) {
    case "called": {
      const left = entry.left_out ? `, ${count(entry.left_out)} left out` : "";
      return ["called", "", strong("Call"), ` ${words(entry.protocol)} under `, code(entry.policy), quiet(` ${count(entry.invited)} invited${left}`)];
    }
    case "message": {
      const rated = entry.score === null || entry.score === undefined ? "" : ` score ${score(entry.score)}`;
      const isFine = entry.disposition === "ok" || entry.disposition === "committed";
      return ["message", isFine ? "" : "fair", strong(words(entry.act)), " from ", code(entry.from), rated, quiet(entry.disposition === "ok" ? "" : ` ${words(entry.disposition)}`)];
    }
    case "rules":
      return ["rules", "quiet", strong("Rules"), ` ${entry.issues.map(issueText).join("; ")}`, quiet(` for ${entry.parties.join(", then ")}`)];
    case "agreed":
      return ["agreed", "good", strong("Agreement"), " on the offer of ", code(entry.by), quiet(` round ${entry.round}, turn ${entry.step}: `), termsText(entry.terms)];
    case "moved":
      return ["moved", "quiet", quiet(`${words(entry.from)} \u2192 ${words(entry.to)}`)];
    case "closed":
      return ["closed", "", strong(`Round ${entry.round} closed`), ` ${words(entry.reason)}`, quiet(` ${count(entry.responded)} of ${count(entry.expected)} responded, ${plural(entry.offers, "valid offer")}`)];
    case "decided": {
      const winners = entry.winners.length ? [" ", code(entry.winners.join(", ")), " wins"] : [" nobody wins"];
      const pinned = entry.documents?.length ? [quiet(", under "), code(entry.documents.join(", "))] : [];
      return ["decided", "good", strong("Decision"), ` ${CAUSES[entry.cause] ?? words(entry.cause)}:`, ...winners, quiet(` of ${plural(entry.ranked.length, "valid offer")}`), ...pinned];
    }
    case "seated":
      return ["decided", "good", strong("Seats"), ` ${CAUSES[entry.cause] ?? words(entry.cause)}`, quiet(` among ${count(entry.ranked.length)} that joined`)];
    case "bid":
      return drawBid(entry);
    case "bidding_ended":
      return drawBiddingEnd(entry);
    case "floor":
      return drawFloor(entry);
    case "concluded":
      return drawConcluded(entry);
    case "asked":
      return drawAsked(entry);
    case "found":
      return drawFound(entry);
    case "proposed":
      return ["proposed", "", strong("Offer"), " of ", code(entry.by), quiet(` round ${entry.round}, turn ${entry.step}: `), termsText(entry.terms)];
    case "registered":
      return ["registered", entry.result === "different" ? "bad" : "", strong("Register"), ` ${words(entry.result)} `, code(entry.key)];
    case "acknowledged":
      return ["sent", "", strong(words(entry.act)), " acknowledged by ", code(entry.by)];
    case "given_up":
      return ["sent", "bad", strong(words(entry.act)), " to ", code(entry.to), ` given up: ${words(entry.reason)}`];
    case "committed":
      return ["committed", "good", strong("Binding"), ` lot ${entry.lot}, award ${entry.award_no}, `, code(entry.contractor)];
    case "reported": {
      const { kind, hash } = entry.routine ?? {};
      const under = hash ? [quiet(" under "), code(hash)] : [];
      const result = entry.result ? [quiet(": "), el("q", {}, entry.result)] : [];
      return ["reported", "good", strong("Report"), " of ", code(entry.contractor), kind ? ` by ${ROUTINES[kind] ?? words(kind)}` : "", ...under, ...result];
    }
    case "award_lost":
      return ["award_lost", "bad", strong("Award lost"), ` lot ${entry.lot}, award ${entry.award_no}, `, code(entry.contractor), quiet(` ${words(entry.loss)}`)];
    case "left_out":
      return ["moved", "quiet", quiet(`${plural(entry.missing, "entry", "entries")} left out here${entry.between ? ", but for these" : ""}`)];
    case "ended":
      return ["ended", tone(entry.outcome), strong("End"), ` ${words(entry.outcome)}`, quiet(` after ${duration(entry.elapsed_us)}`)];
    default:
      return ["other", "quiet", words(entry.what)];
  }
}

/** The valid offers in rank order, best first, each with its terms where they are known. */
export function ranking({ cause, ranked, winners }, terms) {
  const next = ranked.find(({ contractor }) => !winners.includes(contractor));
  const rows = ranked.map(({ contractor, score: ppm }, index) => {
    const wins = winners.includes(contractor);
    const ahead = next && ppm > next.score ? `, ${score(ppm - next.score)} ahead` : "";
    const told = terms.size ? [el("td", {}, terms.has(contractor) ? termsText(terms.get(contractor)) : "not told")] : [];
    return el("tr", { class: wins ? "winner" : undefined },
      el("td", {}, String(index + 1)), el("th", { scope: "row" }, link(contractor, "agents", contractor)), ...told, el("td", { class: "wide" }, fill(bar(), ppm / 1e6)),
      el("td", { class: "figure" }, score(ppm)), el("td", {}, wins ? `wins${ahead}` : ""));
  });
  return el("table", { class: "ranking" }, el("caption", { class: "quiet" }, `rank, contractor, ${terms.size ? "terms, " : ""}score of 100; chosen ${CAUSES[cause] ?? words(cause)}`), el("tbody", {}, ...rows));
}
