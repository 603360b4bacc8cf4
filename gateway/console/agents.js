// The agents: what each did, and whether it won its share.

import { bar, byId, count, duration, el, facts, fill, link, list, plural, rows, say } from "/console/dom.js";
import { drawList, endedRow, needToken } from "/console/overview.js";

const percent = (share) => `${(share * 100).toFixed(1)} %`;

/** Registered agents and those that did something, with what is known of each. */
function agentsOf(named) {
  const known = new Map(named.agents.map((agent) => [agent.agent, { ...agent, isRegistered: true }]));
  for (const activity of named.activity?.agents ?? []) {
    known.set(activity.agent, { ...known.get(activity.agent), ...activity });
  }
  return [...known.values()];
}

const awardsOf = (agents) => agents.reduce((sum, agent) => sum + (agent.awards ?? 0), 0);
const figure = (value) => (value === undefined ? "-" : count(value));
const presence = (agent) => (agent.present === undefined ? "-" : agent.present ? "present" : "absent");
const answers = (agent) => (agent.acknowledged?.count ? duration(agent.acknowledged.p50_us) : "-");
/** Whether an agent has been chosen from, or called: an initiator alone has no share. */
const competes = (agent) => Boolean(agent.calls || agent.offers);
const share = (agent, all) => (competes(agent) && all ? agent.awards / all : undefined);
const fair = (agent, all) => (competes(agent) && all ? agent.fair_ppm / 1e6 / all : undefined);
const told = (value) => (value === undefined ? "-" : percent(value));

export function drawAgents({ agents: registered, present, named }) {
  const agents = named ? agentsOf(named) : [];
  const all = awardsOf(agents);
  const here = present === undefined ? "" : `, ${count(present)} present`;
  const few = named && named.agents.length < registered ? `; shown are the first ${named.agents.length} by name and the busiest` : "";
  say(byId("agents-line"), `${plural(registered, "agent")} registered${here}${few}. Any other is found by its id.`);
  const note = byId("agents-empty");
  note.hidden = agents.length > 0;
  if (named) say(note, "No agent has registered yet.");
  else needToken(note, "Names are for administrators.");
  agents.sort((one, other) => (other.awards ?? -1) - (one.awards ?? -1) || (one.agent < other.agent ? -1 : 1));
  rows(byId("agents-list"), agents, {
    key: (agent) => agent.agent,
    head: (agent) => link(agent.agent, "agents", agent.agent),
    cells: (agent) => [
      presence(agent), figure(agent.opened), figure(agent.calls), figure(agent.offers), figure(agent.awards),
      told(share(agent, all)), told(fair(agent, all)), answers(agent),
    ],
  });
}

/** The page of one agent. Its registration is read once, when the page is opened. */
export class AgentPage {
  #id = "";
  #request;
  #registration = null;

  constructor(request) {
    this.#request = request;
  }

  async open(id) {
    this.#id = id;
    this.#registration = null;
    say(byId("agent-title"), id);
    say(byId("agent-about"), "");
    for (const name of ["agent-tiles", "agent-share", "agent-list"]) byId(name).replaceChildren();
    facts(byId("agent-registration"), []);
    try {
      const response = await this.#request(`/v1/agents/${encodeURIComponent(id)}`);
      if (this.#id !== id) return;
      this.#registration = response.ok ? await response.json() : { status: response.status };
    } catch {
      this.#registration = null;
    }
    if (this.#id === id) this.#drawRegistration();
  }

  draw(snapshot, isHeld) {
    const { named } = snapshot;
    if (!named) {
      needToken(byId("agent-about"), "What an agent does is for administrators.");
      return;
    }
    const agents = agentsOf(named);
    const agent = agents.find((one) => one.agent === this.#id) ?? { agent: this.#id };
    const all = awardsOf(agents);
    const isCounted = agent.calls !== undefined;
    say(byId("agent-about"), isCounted ? "Since the engines that are heard started." :
      "Not among the 64 busiest agents of an engine: nothing is counted of it.");
    this.#drawTiles(agent);
    this.#drawShare(agent, all);
    const opened = (named.ended ?? []).filter((one) => one.negotiation.startsWith(`${this.#id}~`));
    drawList("agent", opened, endedRow, 12, snapshot, isHeld, "None among the newest 48 that ended.");
  }

  #drawTiles(agent) {
    const tiles = [
      ["Present", presence(agent), agent.streams === undefined ? "" : plural(agent.streams, "stream")],
      ["Opened", figure(agent.opened), "negotiations"], ["Calls", figure(agent.calls), "sent to it"], ["Offers", figure(agent.offers), "that counted"],
      ["Awards", figure(agent.awards), "re-awards included"],
      ["Acknowledges in", answers(agent), agent.acknowledged?.count ? `p50; p95 ${duration(agent.acknowledged.p95_us)}` : "nothing measured"],
    ];
    list(byId("agent-tiles"), tiles, {
      key: ([name]) => name,
      create: ([name]) => el("div", { class: "tile" }, el("h3", {}, name), el("p", { class: "figure" }), el("p", { class: "quiet" })),
      update: (node, [, value, aside]) => {
        say(node.children[1], value);
        say(node.children[2], aside);
      },
    });
  }

  #drawShare(agent, all) {
    const shares = [["its share", share(agent, all)], ["a fair draw", fair(agent, all)]].filter(([, value]) => value !== undefined);
    const most = Math.max(0.01, ...shares.map(([, value]) => value));
    list(byId("agent-share"), shares, {
      key: ([name]) => name,
      create: ([name]) => el("li", { class: "bar-row" }, el("span", { class: "name" }, name), bar(), el("span", { class: "figure" })),
      update: (node, [, value]) => {
        fill(node.children[1], value / most);
        say(node.children[2], percent(value));
      },
    });
    say(byId("agent-share-note"), shares.length
      ? `${count(agent.awards)} of ${count(all)} awards. A fair draw is what it would have got, had every award been drawn among the valid offers it was chosen from: ${(agent.fair_ppm / 1e6).toFixed(1)}.`
      : "It has not competed for an award.");
  }

  #drawRegistration() {
    const found = this.#registration;
    const container = byId("agent-registration");
    if (!found || found.status) {
      const why = found?.status === 404 ? "It is not registered: it may call, and is found by nobody." : "Not readable without a token that may.";
      facts(container, [["State", why]]);
      return;
    }
    const lease = found.lease_ms ? `${found.lease_ms / 1000} s` : "";
    facts(container, [
      ["Capabilities", (found.capabilities ?? []).join(", ") || "none"], ["Topics", (found.topics ?? []).join(", ") || "none"],
      ["Present", found.present === undefined ? "" : found.present ? "yes" : "no"], ["Lease", lease],
      ["Durable", found.durable === undefined ? "" : found.durable ? "yes: it is called while it is absent, too" : "no"],
    ]);
  }
}
