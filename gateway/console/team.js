// A team's part of its page: who sits in it, its tasks, and its steps as its members are told them.

import { byId, count, el, link, plural, words } from "/console/dom.js";

const strong = (text) => el("strong", {}, text);
const code = (text) => el("span", { class: "id" }, text);
const quiet = (text) => el("span", { class: "quiet" }, text);
/** What a task's state looks like. */
const TONES = { done: "good", failed: "bad" };
/** Acts that the step they lead to tells in full. */
const TOLD = new Set(["say", "assign", "pause", "conclude"]);

/** Whether a message is told in full by the step it led to. */
export const isToldByStep = (entry) => entry.what === "message" && entry.disposition === "ok" && TOLD.has(entry.act);

/** A text; empty where only administrators are shown it. */
const quoted = (text) => (text ? el("q", {}, text) : "");

/** Kind, tone and content of a step. */
export function drawFloor(floor) {
  const { step, turn, state, speaker, by, said, tasks = [], members = [], muted = [], waits = [], conclusion } = floor;
  const parts = [];
  if (said?.text !== undefined) parts.push(strong("Say"), by ? " of " : "", by ? code(by) : "", " ", quoted(said.text));
  if (said?.repeats !== undefined) parts.push(strong("Say"), " of ", code(by), quiet(` repeats step ${count(said.repeats)}`));
  if (conclusion) parts.push(strong("Vote"), " on what ", code(conclusion.by), " concludes ", quoted(conclusion.text));
  if (members.length) parts.push(strong("Members"), " ", code(members.join(", ")));
  if (muted.length) parts.push(strong("Muted"), " ", code(muted.join(", ")));
  for (const task of tasks) parts.push(strong(`Task ${count(task.task)}`), ` ${words(task.status)} `, task.owner ? code(task.owner) : "", " ");
  if (parts.length === 0) parts.push(by ? code(by) : strong("Silence"));
  const next = speaker ? [quiet(`; ${words(state)}, the floor is with `), code(speaker)] : [quiet(`; ${words(state)}${waits.length ? ` tasks ${waits.join(", ")}` : ""}`)];
  return ["floor", muted.length ? "fair" : "", ...parts, ...next, quiet(` (turn ${count(turn)}, step ${count(step)})`)];
}

/** Kind, tone and content of what was concluded. */
export function drawConcluded({ by, text, turn, votes }) {
  const counted = votes ? `, ${count(votes.yes)} for it and ${count(votes.no)} against` : "";
  return ["concluded", "good", strong("Conclusion"), " of ", code(by), " ", quoted(text), quiet(` in turn ${count(turn)}${counted}`)];
}

/** Members and tasks beside the steps; hidden where there was no step of a team. */
export class TeamPanel {
  draw({ negotiation, entries }) {
    const floors = entries.filter((entry) => entry.what === "floor");
    byId("team-panel").hidden = floors.length === 0;
    if (floors.length === 0) return;
    const isOver = entries.some((entry) => entry.what === "ended");
    byId("team-members").replaceChildren(...membersOf(floors, isOver).map(drawMember));
    const tasks = tasksOf(floors);
    byId("team-tasks").replaceChildren(...tasks.map((task) => drawTask(negotiation, task)));
    byId("team-tasks-empty").hidden = tasks.length > 0;
  }

  close() {
    byId("team-panel").hidden = true;
    byId("team-members").replaceChildren();
    byId("team-tasks").replaceChildren();
  }
}

/** Who sits in the team, as far as its journal reaches: turns of each, who leads, who has the floor. */
function membersOf(floors, isOver) {
  const members = floors.findLast((floor) => floor.members?.length)?.members ?? [];
  const muted = new Set(floors.findLast((floor) => floor.muted?.length)?.muted ?? []);
  const lead = members.find((member) => !muted.has(member));
  const holder = isOver ? undefined : floors.at(-1).speaker;
  return members.map((agent) => ({
    agent, isLead: agent === lead, isMuted: muted.has(agent), hasFloor: agent === holder,
    turns: floors.filter((floor) => floor.by === agent && floor.said).length,
  }));
}

function drawMember({ agent, isLead, isMuted, hasFloor, turns }) {
  const marks = [isLead && "lead", hasFloor && "has the floor", isMuted && "muted", `spoke ${plural(turns, "time")}`];
  return el("li", {}, link(agent, "agents", agent), " ", quiet(marks.filter(Boolean).join(", ")));
}

/** Every task with how it stood last. */
function tasksOf(floors) {
  const tasks = new Map();
  for (const { tasks: changed = [] } of floors) {
    for (const task of changed) tasks.set(task.task, { ...tasks.get(task.task), ...task });
  }
  return [...tasks.values()];
}

function drawTask(team, { task, status, owner, title, code: reason, result }) {
  const id = `${team}~t${task}`;
  const state = quiet(` ${words(status)}${reason ? `: ${words(reason)}` : ""}`);
  const by = owner ? [" of ", link(owner, "agents", owner)] : [];
  return el("li", { "data-tone": TONES[status] }, link(`task ${count(task)}`, "negotiations", id), title ? ` ${title}` : "", ...by, state,
    result ? el("q", {}, result) : "");
}
