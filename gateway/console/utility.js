// What the offers of a bargain are worth under weights that somebody assumed, and which of them stand out. Nothing here
// knows the page: what goes in comes from a journal or an address, what comes out is numbers.

/** The heaviest weight that can be assumed for an issue. */
export const WEIGHT_MAX = 100;
/** So many values of a range are looked at for the frontier of the outcome space; of more, every so many. */
export const RANGE_STEPS = 200;
/** So many sums are looked at for it, for each issue; beyond, the frontier is that of the offers. */
const SUMS_MAX = 200_000;

/** The offers that stood, in order, as `{turn, by, terms, isAgreed}`. */
export function offersOf(entries) {
  const offers = entries.filter((entry) => entry.what === "proposed").map(({ step, by, terms }) => ({ turn: step, by, terms, isAgreed: false }));
  const agreed = entries.findLast((entry) => entry.what === "agreed");
  if (!agreed) return offers;
  const same = offers.findLast((offer) => offer.by === agreed.by && areSame(offer.terms, agreed.terms));
  if (same) same.isAgreed = true;
  // An offer that was accepted before anybody was told of it; of its turns those of the others were acceptances.
  else offers.push({ turn: agreed.step - Math.max(1, (rulesOf(entries)?.parties.length ?? 2) - 1), by: agreed.by, terms: agreed.terms, isAgreed: true });
  return offers;
}

/** What the parties were told of the rules; absent where the call came before the engine that remembers. */
export const rulesOf = (entries) => entries.find((entry) => entry.what === "rules");

/** Who takes part: first who offered, in the order of their first offers, so that each keeps its colour. */
export const partiesOf = (offers, rules) => [...new Set([...offers.map((offer) => offer.by), ...(rules?.parties ?? [])])];

const areSame = (one, other) => JSON.stringify(Object.entries(one).sort()) === JSON.stringify(Object.entries(other).sort());

/**
 * The issues on which outcomes differ. Of a number there are `least` and `most`, of texts the `values` in their order.
 * `isPublic`: the rules say so; otherwise it is what the offers have shown so far.
 */
export function issuesOf(offers, rules) {
  const known = new Map((rules?.issues ?? []).filter((issue) => issue.values?.length !== 0).map((issue) => [issue.name, issue]));
  const names = [...new Set([...known.keys(), ...offers.flatMap((offer) => Object.keys(offer.terms))])];
  const inAll = names.filter((name) => offers.every((offer) => offer.terms[name] !== undefined));
  return inAll.map((name) => issueOf(name, known.get(name), offers.map((offer) => offer.terms[name])))
    .filter((issue) => (issue.isNumber ? issue.most > issue.least : issue.values.length > 1));
}

function issueOf(name, rule, seen) {
  const isPublic = rule !== undefined;
  if (rule && rule.values === undefined) return { name, isPublic, isNumber: true, least: rule.min, most: rule.max };
  const values = [...new Set(rule?.values ?? seen)];
  if (values.every((value) => typeof value === "number")) {
    const sorted = values.sort((one, other) => one - other);
    return { name, isPublic, isNumber: true, least: sorted[0], most: sorted.at(-1), ...(isPublic ? { values: sorted } : {}) };
  }
  const texts = values.map(String);
  // Offers come in no order of their values, but some texts have one.
  if (!isPublic && texts.every((text) => text.trim() !== "" && Number.isFinite(Number(text)))) texts.sort((one, other) => one - other);
  return { name, isPublic, isNumber: false, values: texts };
}

/** How far a value lies between the first and the last of its issue, 0 to 1. */
function place(issue, value) {
  if (issue.isNumber) return (value - issue.least) / (issue.most - issue.least);
  return issue.values.indexOf(String(value)) / (issue.values.length - 1);
}

const worth = (wish, at) => (wish.wants === "more" ? at : 1 - at);

/** The part each issue has in all weights; where all are 0, all count alike. */
function parts(issues, wishes) {
  const weights = issues.map((issue) => wishes.get(issue.name).weight);
  const sum = weights.reduce((all, weight) => all + weight, 0);
  return weights.map((weight) => (sum > 0 ? weight / sum : 1 / issues.length));
}

/** What terms are worth, 0 to 1: the sum over the issues of its part times the worth of its value. */
export function utility(issues, wishes, terms) {
  const part = parts(issues, wishes);
  return rounded(issues.reduce((sum, issue, index) => sum + part[index] * worth(wishes.get(issue.name), place(issue, terms[issue.name])), 0));
}

/** Sums that are equal but for the order in which they were added up are equal. */
const rounded = (value) => Math.round(value * 1e9) / 1e9;

/**
 * Wishes nobody was asked for: equal weights, and opposed directions, so turned that the first offers suit who made them.
 * A map of parties, each with a map of issues.
 */
export function equalWishes(issues, offers, parties) {
  const first = parties.map((party) => offers.find((offer) => offer.by === party)?.terms);
  const weight = Math.round(WEIGHT_MAX / Math.max(1, issues.length));
  const wants = (issue, index) => {
    const mine = first[index] && place(issue, first[index][issue.name]);
    if (index > 0) {
      const theirs = first[0] && place(issue, first[0][issue.name]);
      if (mine !== undefined && theirs !== undefined && mine !== theirs) return mine > theirs ? "more" : "less";
      return wants(issue, 0) === "more" ? "less" : "more";
    }
    const theirs = first.slice(1).filter(Boolean).map((terms) => place(issue, terms[issue.name])).find((at) => at !== mine);
    return mine !== undefined && theirs !== undefined && mine > theirs ? "more" : "less";
  };
  return new Map(parties.map((party, index) => [party, new Map(issues.map((issue) => [issue.name, { weight, wants: wants(issue, index) }]))]));
}

/** The same with guessed weights: an issue weighs the more for a party, the less of it the party gave up from its first offer to its last. */
export function guessedWishes(issues, offers, parties) {
  const wishes = equalWishes(issues, offers, parties);
  for (const party of parties) {
    const own = offers.filter((offer) => offer.by === party);
    if (own.length < 2) continue;
    // What was given up wholly still counts a little: otherwise it would have been given up at once.
    const kept = issues.map((issue) => 1.05 - Math.abs(place(issue, own.at(-1).terms[issue.name]) - place(issue, own[0].terms[issue.name])));
    const all = kept.reduce((sum, one) => sum + one, 0);
    issues.forEach((issue, index) => { wishes.get(party).get(issue.name).weight = Math.round((WEIGHT_MAX * kept[index]) / all); });
  }
  return wishes;
}

/** The indices of points that no other point dominates: none is better for one and no worse for the other. */
export function frontier(points) {
  const order = points.map((_, index) => index).sort((a, b) => points[b].x - points[a].x || points[b].y - points[a].y);
  const found = [];
  let best = { x: Infinity, y: -Infinity };
  for (const index of order) {
    const point = points[index];
    if (point.y > best.y) best = point;
    if (point.y === best.y && point.x === best.x) found.push(index);
  }
  return found.sort((a, b) => points[a].x - points[b].x || a - b);
}

/** The index of the point with the greatest product of both utilities, the first of equals; -1 where every product is 0. */
export function nash(points) {
  let best = -1;
  points.forEach(({ x, y }, index) => {
    if (x * y > (best < 0 ? 0 : points[best].x * points[best].y)) best = index;
  });
  return best;
}

/** How many outcomes there are, where the rules are known. */
export const outcomes = (issues) =>
  issues.every((issue) => issue.isPublic) ? issues.reduce((all, issue) => all * (issue.values?.length ?? issue.most - issue.least + 1), 1) : undefined;

/**
 * The frontier of all outcomes, from left to right; absent where the rules are not known, or there are too many. Utilities are
 * sums over issues, so what is dominated among the sums over some issues is so among the sums over all.
 */
export function spaceFrontier(issues, one, other) {
  if (outcomes(issues) === undefined) return undefined;
  const [ones, others] = [parts(issues, one), parts(issues, other)];
  let sums = [{ x: 0, y: 0 }];
  const order = issues.map((_, index) => index).sort((a, b) => placesOf(issues[a]).length - placesOf(issues[b]).length);
  for (const index of order) {
    const [wishOne, wishOther] = [one.get(issues[index].name), other.get(issues[index].name)];
    const places = placesOf(issues[index]);
    if (sums.length * places.length > SUMS_MAX) return undefined;
    const all = sums.flatMap(({ x, y }) => places.map((at) => ({ x: rounded(x + ones[index] * worth(wishOne, at)), y: rounded(y + others[index] * worth(wishOther, at)) })));
    sums = frontier(all).map((kept) => all[kept]).filter((sum, at, kept) => at === 0 || sum.x !== kept[at - 1].x);
  }
  return sums;
}

/** Whether the frontier of the outcome space looks at every so many values of a range only. */
export const isStepped = (issues) => issues.some((issue) => !issue.values && issue.most - issue.least > RANGE_STEPS);

function placesOf(issue) {
  if (issue.values) return issue.values.map((value) => place(issue, value));
  const steps = Math.min(RANGE_STEPS, issue.most - issue.least);
  return [...Array(steps + 1).keys()].map((step) => place(issue, Math.round(issue.least + ((issue.most - issue.least) * step) / steps)));
}

/** What was assumed, as it stands in an address: `x=alice&y=bob&of.alice=price:60:less,fetched_by:40:more`. */
export function writeAssumed({ x, y, wishes }) {
  const wish = ([name, { weight, wants }]) => `${encodeURIComponent(name)}:${weight}:${wants}`;
  const party = ([name, issues]) => `of.${encodeURIComponent(name)}=${[...issues].map(wish).join(",")}`;
  return [`x=${encodeURIComponent(x)}`, `y=${encodeURIComponent(y)}`, ...[...wishes].map(party)].join("&");
}

/** Reads it; what is none of it is left out. */
export function readAssumed(text) {
  const assumed = { x: undefined, y: undefined, wishes: new Map() };
  for (const piece of text.split("&")) {
    const [name, value] = [decoded(piece.slice(0, piece.indexOf("="))), piece.slice(piece.indexOf("=") + 1)];
    if (name === "x" || name === "y") assumed[name] = decoded(value);
    else if (name?.startsWith("of.")) assumed.wishes.set(name.slice(3), new Map(value.split(",").map(wishOf).filter(Boolean)));
  }
  return assumed;
}

function wishOf(text) {
  const [name, weight, wants, ...more] = text.split(":").map(decoded);
  const isWish = name && /^\d{1,3}$/.test(weight) && Number(weight) <= WEIGHT_MAX && (wants === "more" || wants === "less") && more.length === 0;
  return isWish ? [name, { weight: Number(weight), wants }] : undefined;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** `wishes` with what was assumed instead, where it is of these parties and issues. */
export function withAssumed(wishes, assumed) {
  const of = (party, issue, wish) => ({ ...(assumed.get(party)?.get(issue) ?? wish) });
  return new Map([...wishes].map(([party, issues]) => [party, new Map([...issues].map(([issue, wish]) => [issue, of(party, issue, wish)]))]));
}
