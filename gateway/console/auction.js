// An auction's part of its page: its bids with their prices, which every bidder is told, and whose they are, which none of the
// others is told.

import { legend, overRun } from "/console/charts.js";
import { brief, byId, count, duration, el, link, plural, say, words } from "/console/dom.js";

const strong = (text) => el("strong", {}, text);
const code = (text) => el("span", { class: "id" }, text);
const quiet = (text) => el("span", { class: "quiet" }, text);
/** Why bidding ended. */
const ENDINGS = { deadline: "the time was over", window: "nobody bid any more", all_responded: "nobody was left that could bid" };

const format = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 6 });
const priceText = (price) => format.format(price / 1e6);

const isOffer = (entry) => entry.what === "message" && entry.act === "offer";

/** Whether it is an auction, also where the call came before the engine that remembers. */
export const isAuction = (entries) => entries.some((entry) => entry.protocol === "english_auction" || entry.what === "bid");

/**
 * The bids that led, by their numbers, in order. A `bid` entry is written when its bidder is told; when it came, its message
 * says, unless that was left out.
 */
export function bidsOf(entries) {
  const said = new Map(entries.filter((entry) => isOffer(entry) && entry.disposition === "ok").map((entry) => [entry.score, entry.at]));
  const bids = entries.filter((entry) => entry.what === "bid")
    .map((bid) => ({ ...bid, at: said.get(bid.bid_no) ?? bid.at, isSaid: said.has(bid.bid_no) }));
  return new Map(bids.sort((one, other) => one.bid_no - other.bid_no).map((bid) => [bid.bid_no, bid]));
}

/** What the timeline tells of an entry: of a bid its message and its price in one; null where that has been told. */
export function asBidding(entry, bids) {
  if (entry.what === "bid") return bids.get(entry.bid_no).isSaid ? null : entry;
  if (entry.what === "closed") return { ...entry, what: "bidding_ended" };
  if (!isOffer(entry)) return entry;
  if (entry.disposition !== "ok") return { ...entry, act: "bid" };
  return bids.get(entry.score) ?? { what: "bid", bid_no: entry.score, by: entry.from };
}

/** Kind, tone and content of a bid; its price is missing until its bidder has been told that it leads. */
export function drawBid({ by, bid_no: number, price }) {
  return ["bid", "", strong(`Bid ${count(number)}`), price === undefined ? "" : `: ${priceText(price)}`, quiet(" of "), code(by)];
}

/** Kind, tone and content of the end of bidding. */
export function drawBiddingEnd({ reason, offers, expected }) {
  return ["closed", "", strong("End of bidding"), ` ${ENDINGS[reason] ?? words(reason)}`, quiet(` ${count(offers)} of ${plural(expected, "bidder")} with a bid`)];
}

/** The end of bidding; an auction that is called off meanwhile has no close. */
export const endOf = (entries) => entries.find((entry) => entry.what === "closed") ?? entries.find((entry) => entry.what === "ended");

/** How an auction stands, or ended, in a line. */
export function lineOf(bids, began, closed) {
  const last = bids.at(-1);
  const held = bids.length < last.bid_no ? `, of which the journal holds ${count(bids.length)}` : "";
  const end = closed ? ` Bidding ended after ${duration(closed.at - began)}: ${ENDINGS[closed.reason] ?? words(closed.reason ?? closed.outcome)}.` : "";
  return `${plural(last.bid_no, "bid")}${held}; ${priceText(last.price)} of ${last.by} ${closed ? "was the last" : "stands"}.${end}`;
}

/** Columns of the chart, over microseconds since the call: the standing price, the bids of `leader`, and those of others. */
export function pricesOver(bids, leader, began, until) {
  let at = 0;
  const times = bids.map((bid) => (at = Math.max(at, bid.at - began)));
  const prices = bids.map((bid) => bid.price / 1e6);
  const points = (isLeader) => [...prices.map((price, index) => ((bids[index].by === leader) === isLeader ? price : null)), null];
  return [[...times, Math.max(at, until - began)], [...prices, prices.at(-1)], points(true), points(false)];
}

/** The bidders of a decision, in rank order, in place of a ranking by score: a score is the number of the last bid. */
export function bidders({ ranked, winners }, bids, terms) {
  const rows = ranked.map(({ contractor, score: number }, index) => {
    const price = bids.get(number)?.price ?? terms.get(contractor)?.price;
    const wins = winners.includes(contractor);
    return el("tr", { class: wins ? "winner" : undefined },
      el("td", {}, String(index + 1)), el("th", { scope: "row" }, link(contractor, "agents", contractor)), el("td", { class: "figure" }, count(number)),
      el("td", { class: "figure" }, price === undefined ? "left out" : priceText(price)), el("td", {}, wins ? "wins" : ""));
  });
  return el("table", { class: "ranking" }, el("caption", { class: "quiet" }, "rank, bidder, number and price of its last bid"), el("tbody", {}, ...rows));
}

/** The standing price over time, beside the steps; hidden where nobody bid. */
export class AuctionPanel {
  #end = [];
  #chart = overRun(byId("auction-chart"), brief, () => this.#end);

  draw({ entries }) {
    const bids = [...bidsOf(entries).values()];
    byId("auction-panel").hidden = bids.length === 0;
    if (bids.length === 0) return;
    const [began, last] = [entries[0].at, bids.at(-1)];
    const closed = endOf(entries);
    this.#end = closed ? [closed.at - began] : [];
    const line = lineOf(bids, began, closed);
    const names = [closed ? "standing price; dashed: the end of bidding" : "standing price", `bids of ${last.by}, the leader`, "bids of others"];
    this.#chart.draw(names, pricesOver(bids, last.by, began, (closed ?? entries.at(-1)).at), `The standing price over time: ${line}`);
    legend(byId("auction-legend"), names);
    say(byId("auction-line"), line);
  }

  close() {
    this.#chart.destroy();
    byId("auction-panel").hidden = true;
  }
}
