// The family that a negotiation belongs to, as a tree: a team, its tasks with owner and state, the sub-teams that work on them.

import { byId, count, el, link, words } from "/console/dom.js";

/** What an id has behind that of its team: of a task its number, of a sub-team the task's and the award's. */
const TASK = /~t(\d+)$/;
const SUB_TEAM = /~s(\d+)-(\d+)$/;
const quiet = (text) => el("span", { class: "quiet" }, text);

/** The id of what a negotiation is part of: a task of its team, a sub-team of the task it works on; none of a root. */
export function parentOf(id) {
  if (TASK.test(id)) return id.replace(TASK, "");
  return SUB_TEAM.test(id) ? id.replace(SUB_TEAM, "~t$1") : undefined;
}

const rootOf = (id) => id.split("~").slice(0, 2).join("~");

export class FamilyTree {
  #id = "";
  #tasks = new Map();
  #listed = new Map();

  open(id) {
    this.close();
    this.#id = id;
    this.#show();
  }

  close() {
    this.#id = "";
    this.#tasks.clear();
    byId("family-panel").hidden = true;
  }

  /** Takes what the journal of a team says of its tasks. */
  draw({ negotiation, entries }) {
    for (const { what, tasks = [] } of entries) {
      if (what !== "floor") continue;
      for (const { task, status, owner } of tasks) {
        const id = `${negotiation}~t${task}`;
        this.#tasks.set(id, { state: words(status), owner: owner ?? this.#tasks.get(id)?.owner });
      }
    }
    this.#show();
  }

  /** Takes what is open and what ended lately. */
  see({ named }) {
    const states = [...(named?.open ?? []).map((one) => [one.negotiation, words(one.phase)]),
      ...(named?.ended ?? []).map((one) => [one.negotiation, words(one.outcome)])];
    this.#listed = new Map(states);
    this.#show();
  }

  #show() {
    if (!this.#id) return;
    const root = rootOf(this.#id);
    const isOfFamily = (id) => id === root || (id.startsWith(`${root}~`) && parentOf(id));
    const known = new Set([this.#id, ...this.#tasks.keys(), ...this.#listed.keys()].filter(isOfFamily));
    for (const id of known) for (let above = parentOf(id); above; above = parentOf(above)) known.add(above);
    const isAlone = known.size < 2;
    byId("family-panel").hidden = isAlone;
    const key = JSON.stringify([...known].map((id) => [id, this.#about(id)]));
    const tree = byId("family-tree");
    if (isAlone || tree.dataset.shown === key) return;
    tree.dataset.shown = key;
    tree.replaceChildren(this.#node(root, [...known].sort(new Intl.Collator("en", { numeric: true }).compare)));
  }

  #about(id) {
    const { state, owner } = this.#tasks.get(id) ?? {};
    return [owner && `of ${owner}`, this.#listed.get(id) ?? state].filter(Boolean).join(", ");
  }

  #node(id, known) {
    const below = known.filter((one) => parentOf(one) === id).map((one) => this.#node(one, known));
    const [, task] = TASK.exec(id) ?? [];
    const name = task ? `task ${count(Number(task))}` : SUB_TEAM.test(id) ? "sub-team" : `team ${id}`;
    const shown = id === this.#id ? el("strong", { "aria-current": "page" }, name) : link(name, "negotiations", id);
    return el("li", {}, shown, " ", quiet(this.#about(id)), below.length ? el("ul", {}, ...below) : undefined);
  }
}
