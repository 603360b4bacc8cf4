// The console: hears snapshots, draws them, opens timelines, switches the default policy.

import { byId, problem, say } from "/console/dom.js";
import { actions, draw } from "/console/panels.js";
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
    history.replaceState(null, "", location.pathname + location.search);
    sessionStorage.setItem(TOKEN_KEY, given);
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return fetch(path, { ...options, headers, cache: "no-store" });
}

const timeline = new Timeline(request, () => byId("ended-title").focus());

/** A list stands still while somebody chooses from it. */
function isHeld(container) {
  return timeline.isOpen || container.matches(":focus-within") || (canHover.matches && container.matches(":hover"));
}

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
  draw(snapshot, isHeld);
  status(snapshot.engines ? "live" : "alone", snapshot.engines ? "live" : "no engine heard");
  const isStranger = snapshot.sight === "totals" && token;
  notice(!snapshot.engines
    ? "This gateway hears no engine: messages are stored, and nothing negotiates until one starts."
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
  if (!byId("token-dialog").open && !timeline.isOpen) byId("token-dialog").showModal();
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

actions.open = (id, opener) => timeline.open(id, opener);
actions.ask_token = () => askToken();
actions.make_default = async (name, id) => {
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

/** Arrows move between the rows of both lists, Home and End to their ends. */
byId("negotiations").addEventListener("keydown", (event) => {
  const rows = [...byId("negotiations").querySelectorAll("button.row")];
  const at = rows.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (at < 0 || to === undefined || !rows[to]) return;
  event.preventDefault();
  rows[to].focus();
});

/** A list that is no longer held is brought up to date at once. */
for (const name of ["open-list", "ended-list"]) {
  byId(name).addEventListener("focusout", () => setTimeout(() => last && draw(last, isHeld)));
  byId(name).addEventListener("mouseleave", () => last && draw(last, isHeld));
}

addEventListener("online", () => reading.abort());
addEventListener("hashchange", () => {
  if (location.hash.includes("token=")) setToken(takeToken());
});
say(byId("token-button"), token ? "Token" : "Enter token");
listen();
