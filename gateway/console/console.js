// The console: reads snapshots, draws the page that the address names, switches the default policy.

import { AgentPage, drawAgents } from "/console/agents.js";
import { byId, problem, route, say } from "/console/dom.js";
import { actions as lists, drawNegotiations, drawOverview, drawState } from "/console/overview.js";
import { actions as switching, drawPolicies } from "/console/policies.js";
import { Timeline } from "/console/timeline.js";

const TOKEN_KEY = "llmx-token";
/** Longest silence of a stream that tells something each second, before it counts as lost. */
const SILENCE_MS = 6000;
const BACKOFF_MS = [300, 1000, 2000, 4000, 8000];
const canHover = matchMedia("(hover: hover)");

let token = takeToken();
let reading = new AbortController();
let last = null;

/** The token of the address, which is cleared of it, or the one this tab has kept. Fragments are never sent. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
    sessionStorage.setItem(TOKEN_KEY, given);
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return fetch(path, { ...options, headers, cache: "no-store" });
}

/** Whose token it is, as the token says; of none, nobody's. */
function bearer() {
  try {
    return JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).sub;
  } catch {
    return null;
  }
}

const timeline = new Timeline(request, bearer);
const agentPage = new AgentPage(request);
let page = { name: "", id: "" };

/** A list keeps its rows while somebody chooses from it. */
function isHeld(container) {
  return container.matches(":focus-within") || (canHover.matches && container.matches(":hover"));
}

// The pages. The address names one: #/, #/negotiations, #/negotiations/ID, #/policies, #/agents, #/agents/ID. What stands
// behind a question mark is what a bargain's page assumes of its parties.

const drawn = {
  overview: (snapshot) => drawOverview(snapshot, isHeld),
  negotiations: (snapshot) => drawNegotiations(snapshot, isHeld),
  policies: (snapshot) => drawPolicies(snapshot),
  agents: (snapshot) => drawAgents(snapshot),
  agent: (snapshot) => agentPage.draw(snapshot, isHeld),
  negotiation: (snapshot) => timeline.see(snapshot),
};
const titles = { overview: "Overview", negotiations: "Negotiations", policies: "Policies", agents: "Agents", unknown: "No such page" };

function pageOf(hash) {
  const [path, assumed = ""] = hash.split("?");
  const parts = path.replace(/^#\/?/, "").split("/").filter(Boolean);
  let decoded;
  try {
    decoded = parts.map(decodeURIComponent);
  } catch {
    return { name: "unknown", id: "" };
  }
  const [first, id, ...more] = decoded;
  if (more.length) return { name: "unknown", id: "" };
  if (!first) return { name: "overview", id: "" };
  if (id && first === "negotiations") return { name: "negotiation", id, assumed };
  if (id && first === "agents") return { name: "agent", id };
  return { name: !id && ["negotiations", "policies", "agents"].includes(first) ? first : "unknown", id: "" };
}

/** Shows the page the address names. `isMove` is false for the first: the focus stays where the browser puts it. */
function go(isMove) {
  const next = pageOf(location.hash);
  if (next.name === page.name && next.id === page.id) {
    if (page.name === "negotiation") timeline.assume(next.assumed);
    return;
  }
  page = next;
  for (const section of document.querySelectorAll("main > .page")) section.hidden = section.dataset.page !== page.name;
  const tab = { negotiation: "negotiations", agent: "agents" }[page.name] ?? page.name;
  for (const anchor of document.querySelectorAll(".top nav a")) {
    if (anchor.dataset.page === tab) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  document.title = `${page.id || titles[page.name]} \u00b7 llmx console`;
  timeline.close();
  if (page.name === "negotiation") timeline.open(page.id, page.assumed);
  if (page.name === "agent") agentPage.open(page.id);
  // Whatever becomes of drawing it, the page is there.
  if (isMove) {
    scrollTo(0, 0);
    document.querySelector(`#page-${page.name} h2`).focus({ preventScroll: true });
  }
  if (last) drawn[page.name]?.(last);
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = byId("search-id").value.trim();
  if (!id) return;
  byId("search-id").value = "";
  location.hash = route(id.includes("~") ? "negotiations" : "agents", id);
});

function status(state, text) {
  const node = byId("status");
  node.dataset.state = state;
  say(node, text);
}

function notice(text) {
  byId("notice").hidden = !text;
  say(byId("notice"), text);
}

function show(snapshot) {
  last = snapshot;
  drawState(snapshot);
  drawn[page.name]?.(snapshot);
  status(snapshot.engines ? "live" : "alone", snapshot.engines ? "live" : "no engine heard");
  const isStranger = snapshot.sight === "totals" && token;
  notice(!snapshot.engines
    ? "This gateway hears no engine: calls are refused, and all else is stored, until one starts."
    : isStranger ? "This token is not an administrator's: names, journals and the switch stay hidden." : "");
}

/** Reads one stream of snapshots to its end; the number of snapshots that came. */
async function read(signal) {
  const response = await request("/v1/console/events", { signal, headers: { Accept: "text/event-stream" } });
  if (!response.ok) throw Object.assign(new Error(await problem(response)), { status: response.status });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [text, events, alarm] = ["", 0, 0];
  const watch = () => {
    clearTimeout(alarm);
    alarm = setTimeout(() => reader.cancel().catch(() => {}), SILENCE_MS);
  };
  try {
    for (;;) {
      watch();
      const { done, value } = await reader.read();
      if (done) return events;
      text += value;
      const frames = text.split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        const data = frame.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        if (!data) continue;
        events += 1;
        show(JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(alarm);
  }
}

/** Reads streams for ever, pausing longer each time one fails. */
async function listen() {
  let failures = 0;
  for (;;) {
    reading = new AbortController();
    let reason = "connection lost";
    try {
      if (await read(reading.signal)) failures = 0;
    } catch (error) {
      if (reading.signal.aborted) {
        failures = 0;
        continue;
      }
      if (error.status === 401) refuseToken(error.message);
      if (error.status === 404) {
        status("off", "off");
        notice(error.message);
        return;
      }
      if (error.status) reason = error.message;
    }
    const pause = BACKOFF_MS[Math.min(failures, BACKOFF_MS.length - 1)];
    failures += 1;
    if (failures > 1) status("lost", `${reason}, trying again`);
    await wait(pause * (0.8 + Math.random() * 0.4));
  }
}

/** Waits; ends at once when the token changes. */
const wait = (ms) => new Promise((resolve) => {
  const { signal } = reading;
  if (signal.aborted) resolve();
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

// The token.

function setToken(text) {
  token = text;
  if (text) sessionStorage.setItem(TOKEN_KEY, text);
  else sessionStorage.removeItem(TOKEN_KEY);
  say(byId("token-button"), text ? "Token" : "Enter token");
  timeline.again(pageOf(location.hash).assumed);
  if (page.name === "agent") agentPage.open(page.id);
  reading.abort();
}

function refuseToken(detail) {
  if (!token) return;
  setToken("");
  askToken(`The token is not accepted: ${detail}`);
}

function askToken(text = "") {
  byId("token").value = "";
  say(byId("token-result"), text);
  byId("token-forget").hidden = !token;
  if (!byId("token-dialog").open) byId("token-dialog").showModal();
  byId("token").focus();
}

async function tryToken(text) {
  const result = byId("token-result");
  // What is no token at all must not become a header.
  if (!/^[\w.~+/=-]{1,4096}$/.test(text)) return say(result, "This is no token: it has other characters, or none.");
  try {
    const response = await fetch("/v1/whoami", { headers: { Authorization: `Bearer ${text}` }, cache: "no-store" });
    if (!response.ok) return say(result, `The token is not accepted: ${await problem(response)}.`);
    const who = await response.json();
    if (!who.admin) return say(result, `This is the token of ${who.agent}, who is no administrator.`);
  } catch {
    return say(result, "The gateway does not answer.");
  }
  setToken(text);
  byId("token-dialog").close();
}

byId("token-button").addEventListener("click", () => askToken());
byId("token-cancel").addEventListener("click", () => byId("token-dialog").close());
byId("token-forget").addEventListener("click", () => {
  setToken("");
  byId("token-dialog").close();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  tryToken(byId("token").value.trim());
});
byId("token-dialog").addEventListener("close", () => { byId("token").value = ""; });

// What the lists do.

lists.ask_token = () => askToken();
switching.make_default = async (name, id) => {
  const result = byId("policy-result");
  result.dataset.tone = "";
  say(result, `switching to ${id}`);
  try {
    const response = await request("/v1/policies/default", {
      method: "PUT",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ policy: name }),
    });
    result.dataset.tone = response.ok ? "good" : "bad";
    if (response.ok) say(result, `Calls that name no policy now get ${id}.`);
    else if (!token) say(result, "Not switched: the switch needs an administrator's token.");
    else say(result, `Not switched: ${await problem(response)}.`);
  } catch {
    result.dataset.tone = "bad";
    say(result, "Not switched: the gateway does not answer.");
  }
};

/** Arrows move between the rows of a page's lists, Home and End to their ends. */
byId("main").addEventListener("keydown", (event) => {
  const rows = [...byId("main").querySelectorAll(".page:not([hidden]) a.row")];
  const at = rows.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (at < 0 || to === undefined || !rows[to]) return;
  event.preventDefault();
  rows[to].focus();
});

/** A list that is no longer held is brought up to date at once. */
const again = () => last && drawn[page.name]?.(last);
for (const container of document.querySelectorAll(".rows")) {
  container.addEventListener("focusout", () => setTimeout(again));
  container.addEventListener("mouseleave", again);
}

// The address names a page, so the link that skips the navigation must not change it.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
addEventListener("online", () => reading.abort());
addEventListener("hashchange", () => {
  if (/[#&]token=/.test(location.hash)) setToken(takeToken());
  go(true);
});
say(byId("token-button"), token ? "Token" : "Enter token");
// The script of the charts is deferred, as this one: it has run by now.
go(false);
listen();
