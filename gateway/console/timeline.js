// One negotiation, step by step, from its journal (`GET /v1/console/negotiations/{id}`).

import { bar, byId, count, duration, el, fill, plural, problem, say, words } from "/console/dom.js";
import { tone } from "/console/panels.js";

const REFRESH_MS = 1000;
/** Deliveries of one act this close together, in microseconds, are told in one line. */
const TOGETHER_US = 250_000;
/** Who or what chose. */
const CAUSES = {
  score: "by score", initiator: "by the initiator", initiator_silent: "by score, since the initiator was silent",
  re_award: "for a runner-up, since the award before fell through",
};
/** So few deliveries are shown without being asked for. */
const FEW = 3;

export class Timeline {
  #dialog = byId("timeline");
  #body = byId("timeline-body");
  #shown = null;
  #seen = "";
  #timer = 0;
  #opener = null;
  #request;

  /** `request(path)` fetches with the token; `lost(id)` gives the focus somewhere when the opener is gone. */
  constructor(request, lost) {
    this.#request = request;
    byId("timeline-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => {
      if (event.target === this.#dialog) this.#dialog.close();
    });
    this.#dialog.addEventListener("close", () => {
      clearTimeout(this.#timer);
      this.#shown = null;
      if (this.#opener?.isConnected) this.#opener.focus();
      else lost();
    });
  }

  get isOpen() {
    return this.#dialog.open;
  }

  open(id, opener) {
    this.#shown = id;
    this.#seen = "";
    this.#opener = opener;
    say(byId("timeline-title"), id);
    say(byId("timeline-about"), "asking its engine");
    this.#body.replaceChildren();
    this.#dialog.showModal();
    byId("timeline-close").focus();
    this.#refresh(id);
  }

  async #refresh(id) {
    let again = true;
    try {
      const response = await this.#request(`/v1/console/negotiations/${encodeURIComponent(id)}`);
      const journal = response.ok ? await response.json() : null;
      if (this.#shown !== id) return;
      if (journal) again = this.#show(journal);
      else again = await this.#refuse(response);
    } catch {
      if (this.#shown !== id) return;
      this.#note("The gateway does not answer; asking again.");
    }
    if (again && this.#shown === id) this.#timer = setTimeout(() => this.#refresh(id), REFRESH_MS);
  }

  /** Says why there is no journal; true when it is worth asking again. */
  async #refuse(response) {
    if (response.status === 404) {
      this.#note("No engine remembers this negotiation any more: it ended too long ago, or its lane has changed hands. The decision stands in the log.");
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
      const opened = new Set([...this.#body.querySelectorAll("details[open]")].map((node) => node.dataset.key));
      const closed = new Set([...this.#body.querySelectorAll("details:not([open])")].map((node) => node.dataset.key));
      const focused = document.activeElement?.parentElement?.dataset?.key;
      const { scrollTop } = this.#body;
      this.#body.replaceChildren(el("ol", { class: "steps" }, ...steps(journal).map(draw)));
      for (const node of this.#body.querySelectorAll("details")) {
        if (opened.has(node.dataset.key)) node.open = true;
        if (closed.has(node.dataset.key)) node.open = false;
        if (focused && focused === node.dataset.key) node.querySelector("summary").focus();
      }
      this.#body.scrollTop = scrollTop;
    }
    return !about.isOver;
  }
}

/** The journal in a line, and whether nothing more can happen. */
function summary({ entries, engine, unacknowledged }) {
  const first = entries.find((entry) => entry.what === "called");
  const last = entries.find((entry) => entry.what === "ended");
  const waiting = unacknowledged ?? 0;
  const kind = first ? `${words(first.protocol)}, ${first.policy}, ` : "";
  const state = last ? `${words(last.outcome)} after ${duration(last.elapsed_us)}` : "open";
  const rest = last && waiting ? `, ${plural(waiting, "delivery", "deliveries")} unacknowledged` : "";
  return { text: `${kind}${state}${rest}; told by ${engine}`, isOver: Boolean(last) && waiting === 0 };
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
  for (const [index, entry] of entries.entries()) {
    if (gap?.from === index) found.push({ after: entry.at - began, entry: { what: "left_out", missing, between: gap.to - gap.from } });
    const isAnswer = entry.what === "acknowledged" || entry.what === "given_up";
    if (isAnswer && paired.has(entry.delivery)) continue;
    if (entry.what !== "sent") {
      found.push({ after: entry.at - began, entry });
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
      const isFine = entry.disposition === "ok";
      return ["message", isFine ? "" : "fair", strong(words(entry.act)), " from ", code(entry.from), rated, quiet(isFine ? "" : ` ${words(entry.disposition)}`)];
    }
    case "moved":
      return ["moved", "quiet", quiet(`${words(entry.from)} \u2192 ${words(entry.to)}`)];
    case "closed":
      return ["closed", "", strong(`Round ${entry.round} closed`), ` ${words(entry.reason)}`, quiet(` ${count(entry.responded)} of ${count(entry.expected)} responded, ${plural(entry.offers, "valid offer")}`)];
    case "decided":
      return ["decided", "good", strong("Decision"), ` ${CAUSES[entry.cause] ?? words(entry.cause)}`, drawRanking(entry)];
    case "registered":
      return ["registered", entry.result === "different" ? "bad" : "", strong("Register"), ` ${words(entry.result)} `, code(entry.key)];
    case "acknowledged":
      return ["sent", "", strong(words(entry.act)), " acknowledged by ", code(entry.by)];
    case "given_up":
      return ["sent", "bad", strong(words(entry.act)), " to ", code(entry.to), ` given up: ${words(entry.reason)}`];
    case "committed":
      return ["committed", "good", strong("Binding"), ` lot ${entry.lot}, award ${entry.award_no}, `, code(entry.contractor)];
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

/** The valid offers in rank order, best first. */
function drawRanking({ ranked, winners }) {
  if (!ranked.length) return quiet(" no valid offer");
  const rows = ranked.map(({ contractor, score: ppm }, index) => {
    const wins = winners.includes(contractor);
    return el("tr", { class: wins ? "winner" : undefined },
      el("td", {}, String(index + 1)), el("th", { scope: "row" }, code(contractor)), el("td", { class: "wide" }, fill(bar(), ppm / 1e6)),
      el("td", { class: "figure" }, score(ppm)), el("td", {}, wins ? "wins" : ""));
  });
  return el("table", { class: "ranking" }, el("caption", { class: "quiet" }, "rank, contractor, score of 100"), el("tbody", {}, ...rows));
}
