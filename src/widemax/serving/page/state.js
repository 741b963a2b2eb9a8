// What is being looked at. It stands in the address too, so that a view can be kept and shared.

import { get } from "./api.js";
import { toast } from "./dom.js";

export const VIEWS = ["explore", "map", "run"];
export const MOST_HISTORY = 100;

export const state = {
  view: "explore",
  runs: [],
  run: null, // the name of the run
  other: null, // a second one beside it
  history: [], // items, oldest first
  user: null,
  filters: {},
  traits: {}, // of somebody new, by the names of the users' features
  typed: "", // what they typed just now, for a run that reads it
  includeSeen: false,
  k: 10,
};

const listeners = new Set();

export function subscribe(listener) {
  listeners.add(listener);
}

export function runOf(name = state.run) {
  return state.runs.find((run) => run.name === name);
}

export function shownRuns() {
  return [state.run, state.other].filter((name) => name !== null).map(runOf);
}

export function can(what, run = runOf()) {
  return run.supports.includes(what);
}

export function update(changes) {
  Object.assign(state, changes);
  const address = addressOf();
  if (address !== location.hash) history.replaceState(null, "", address);
  for (const listener of listeners) listener(new Set(Object.keys(changes)));
}

export function addToHistory(item) {
  if (state.history.some((each) => each.key === item.key)) return;
  update({ history: [...state.history, item].slice(-MOST_HISTORY) });
}

export function removeFromHistory(key) {
  const left = state.history.filter((each) => each.key !== key);
  update({ history: left, user: left.length ? state.user : null });
}

export function isInHistory(key) {
  return state.history.some((each) => each.key === key);
}

export function addressOf(view = state.view) {
  const parts = new URLSearchParams();
  if (state.runs.length && state.run !== state.runs[0].name) parts.set("run", state.run);
  if (state.other) parts.set("with", state.other);
  if (state.user !== null) parts.set("user", state.user);
  for (const item of state.history) parts.append("had", item.key);
  const text = parts.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export function readAddress() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = new URLSearchParams(text);
  const known = (name) => (state.runs.some((run) => run.name === name) ? name : null);
  const run = known(parts.get("run")) ?? state.runs[0].name;
  const other = known(parts.get("with"));
  return {
    view: VIEWS.includes(path) ? path : "explore",
    run,
    other: other === run ? null : other,
    user: parts.get("user"),
    had: parts.getAll("had").slice(-MOST_HISTORY),
  };
}

// Look up the keys of an address; those that the run does not know are left out, and it is said.
export async function itemsOf(keys, run) {
  const known = new Map(run === state.run ? state.history.map((item) => [item.key, item]) : []);
  const found = await Promise.allSettled(
    keys.map((key) => (known.has(key) ? known.get(key) : get("item", { key, run }))),
  );
  const there = found.filter((each) => each.status === "fulfilled").map((each) => each.value);
  const lost = keys.length - there.length;
  if (lost) toast(`${lost} of ${keys.length} items of this address are not in the run.`);
  return there;
}

// Who is asked for, as the server takes it.
export function personFor(run) {
  const known = new Set((run.user_features ?? []).map((each) => each.name));
  const traits = Object.entries(state.traits).filter(([name]) => known.has(name));
  return {
    run: run.name,
    user: state.user,
    history: state.history.map((item) => item.key),
    ...(traits.length && can("features", run) ? { features: Object.fromEntries(traits) } : {}),
    ...(state.typed && can("search", run) ? { search: state.typed } : {}),
  };
}

// A newer checkpoint may have answered: then what is known of the run is read again.
export async function noticeStep(name, step) {
  const run = runOf(name);
  if (!run || step === undefined || run.step === step) return;
  run.step = step;
  const { runs } = await get("run");
  toast(`${name} now answers from step ${step.toLocaleString("en-US")}.`);
  update({ runs });
}
