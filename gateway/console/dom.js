// What the other parts draw with. Every text becomes a text node: ids and names come from agents, who may be hostile.

/** An element with properties, attributes (`data-`, `aria-`, `role`, `class`) and children; strings become text. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Sets a node's text, only when it differs: what did not change is not read out again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes a list show `items`, by key. What stays is updated in place and never moved past its neighbours, so that a
 * focused row keeps the focus; if the focused row goes, its neighbour gets it.
 */
export function list(container, items, { key, create, update }) {
  const known = new Map([...container.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(items.map(key));
  for (const [name, child] of known) {
    if (wanted.has(name)) continue;
    if (child.contains(document.activeElement)) {
      const neighbour = child.nextElementSibling ?? child.previousElementSibling;
      neighbour?.querySelector("button")?.focus();
    }
    child.remove();
    known.delete(name);
  }
  let place = container.firstElementChild;
  for (const item of items) {
    let child = known.get(key(item));
    if (!child) {
      child = create(item);
      child.dataset.key = key(item);
    }
    if (child === place) place = place.nextElementSibling;
    else container.insertBefore(child, place);
    update(child, item);
  }
}

const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const finer = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (value) => numbers.format(value);
export const rate = (value) => (value >= 100 ? numbers.format(value) : finer.format(value));
/** A value of an axis: no more digits than it takes. */
export const brief = (value) => String(Number(value.toPrecision(6)));

/** Microseconds for people. */
export function duration(us) {
  if (us === 0) return "0";
  if (us < 1000) return `${numbers.format(us)} \u00b5s`;
  if (us < 100_000) return `${finer.format(us / 1000)} ms`;
  if (us < 1_000_000) return `${numbers.format(us / 1000)} ms`;
  if (us < 120_000_000) return `${finer.format(us / 1e6)} s`;
  return `${numbers.format(us / 60e6)} min`;
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A word of the protocol, as prose: `no_offers` becomes `no offers`. */
export const words = (name) => String(name).replaceAll("_", " ");

/** A value of terms; a price is told in millionths. */
export const amount = (name, value) => (name === "price" ? new Intl.NumberFormat("en", { maximumFractionDigits: 2 }).format(value / 1e6) : count(value));
export const termsText = (terms) => Object.entries(terms).map(([name, value]) => `${words(name)} ${typeof value === "number" ? amount(name, value) : value}`).join(", ");

/** A bar for a share from 0 to 1; the figure beside it says it in words. */
export const bar = () => el("span", { class: "bar", "aria-hidden": "true" }, el("span"));

/** Sets a bar's share. */
export function fill(node, share) {
  node.firstElementChild.style.width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(2)}%`;
  return node;
}

/** How an outcome is coloured. */
export function tone(outcome) {
  if (["completed", "agreement", "concluded", "consensus"].includes(outcome)) return "good";
  return outcome === "aborted" || outcome === "timeout" ? "bad" : "fair";
}

/** The address of a page. */
export const route = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** A link to a page of the console. */
export const link = (text, ...parts) => el("a", { class: "id", href: route(...parts) }, text);

/** Terms and what they are, one below the other; `entries` are pairs. Nothing is drawn anew that did not change. */
export function facts(container, entries) {
  const wanted = entries.filter(([, what]) => what !== undefined && what !== null && what !== "");
  const key = JSON.stringify(wanted.map(([name, what]) => [name, what.outerHTML ?? what]));
  if (container.dataset.shown === key) return;
  container.dataset.shown = key;
  container.replaceChildren(...wanted.map(([name, what]) => el("div", {}, el("dt", {}, name), el("dd", {}, what))));
}

/** A row of figures: the first cell heads the row. Cells are texts, or nodes made once by `head`. */
export function rows(body, items, { key, head, cells }) {
  list(body, items, {
    key,
    create: (item) => el("tr", {}, el("th", { scope: "row" }, head(item)), ...cells(item).map(() => el("td"))),
    update: (row, item) => cells(item).forEach((text, index) => say(row.children[index + 1], text)),
  });
}

/** The detail of a problem document (RFC 9457), or the status. */
export async function problem(response) {
  try {
    const document = await response.json();
    return typeof document.detail === "string" ? document.detail : `status ${response.status}`;
  } catch {
    return `status ${response.status}`;
  }
}
