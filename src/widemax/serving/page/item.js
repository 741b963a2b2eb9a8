// One item in a drawer: what it is, how it scores, and what is near it.

import { get, givenUp, latest, post } from "./api.js";
import { el, failure, iconButton, loading, titled, visible } from "./dom.js";
import { plural, score, share, whole } from "./format.js";
import { itemRows } from "./rows.js";
import {
  addToHistory,
  can,
  isInHistory,
  noticeStep,
  personFor,
  removeFromHistory,
  runOf,
  shownRuns,
  state,
  subscribe,
  update,
} from "./state.js";

const NEIGHBOURS = 10;
const fresh = latest();
let trail = []; // what was opened before, to go back to
let shown = null; // { item, run }
let onMap = () => {};

const dialog = () => document.getElementById("item");

export function setUpItem({ showOnMap }) {
  onMap = showOnMap;
  dialog().addEventListener("close", () => {
    fresh();
    trail = [];
    shown = null;
  });
  // A click beside the drawer closes it; the drawer's own content fills it.
  dialog().addEventListener("click", (event) => {
    if (event.target === dialog()) dialog().close();
  });
  subscribe((changed) => {
    if (shown && changed.has("history")) drawActions();
  });
}

export function openItem(item, run = state.run) {
  if (shown) trail.push(shown);
  draw({ item, run });
}

function draw(next) {
  shown = next;
  const { item } = shown;
  const run = runOf(shown.run);
  const facts = [
    ["Key", el("code", {}, visible(item.key))],
    [
      "Popularity",
      `${whole(item.rank)} of ${whole(run.num_items)}, chosen ${plural(item.count, "time")}`,
    ],
    ...Object.entries(item.features ?? {}).map(([name, value]) => [visible(name), said(value)]),
  ];
  const box = dialog();
  box.replaceChildren(
    el(
      "div",
      { class: "inside" },
      el(
        "div",
        { class: "bar-of-title" },
        trail.length ? iconButton("back", "Back", () => draw(trail.pop())) : null,
        el("h2", { id: "item-title", tabindex: "-1" }, titled(item)),
        iconButton("remove", "Close", () => box.close()),
      ),
      el(
        "dl",
        { class: "facts" },
        facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
        el("div", { id: "item-score", hidden: true }),
      ),
      el("div", { class: "actions", id: "item-actions" }),
      el("div", { id: "item-near" }),
    ),
  );
  drawActions();
  const signal = fresh();
  drawScore(signal);
  drawNear(signal);
  if (!box.open) box.showModal();
  box.scrollTop = 0;
  box.querySelector("#item-title").focus();
}

function said(value) {
  const text = (Array.isArray(value) ? value : [value])
    .filter((each) => each !== null)
    .map(visible)
    .join(", ");
  return el("bdi", {}, text || "–");
}

function drawActions() {
  const { item } = shown;
  const there = isInHistory(item.key);
  const box = document.getElementById("item-actions");
  const focused = box.contains(document.activeElement);
  box.replaceChildren(
    can("recommend")
      ? el(
          "button",
          {
            type: "button",
            class: there ? "button" : "button main",
            onclick: () => (there ? removeFromHistory(item.key) : addToHistory(item)),
          },
          there ? "Take out of the history" : "Add to the history",
        )
      : "",
    can("map", runOf(shown.run))
      ? el(
          "button",
          {
            type: "button",
            class: "button",
            onclick: () => {
              const chosen = shown;
              dialog().close();
              if (chosen.run !== state.run) update({ run: chosen.run, other: state.run });
              update({ view: "map" });
              onMap(chosen.item);
            },
          },
          "Show on the map",
        )
      : "",
  );
  if (focused) box.querySelector("button")?.focus();
}

async function drawScore(signal) {
  const run = runOf(shown.run);
  if (!can("score", run) || (!state.history.length && state.user === null)) return;
  try {
    const body = { ...personFor(run), items: [shown.item.key] };
    const {
      scores: [found],
    } = await post("score", body, signal);
    const probability = Number.isFinite(found.log_probability)
      ? `, probability ${share(Math.exp(found.log_probability))}`
      : "";
    const box = document.getElementById("item-score");
    box.replaceChildren(
      el("dt", {}, "For this history"),
      el("dd", {}, `score ${score(found.score)}${probability}`),
    );
    box.hidden = false;
  } catch {
    // Without a score the rest of the drawer stands as it is.
  }
}

async function drawNear(signal) {
  const { item, run: name } = shown;
  const runs = shownRuns().filter((run) => can("similar", run));
  const chosen = runs.length ? runs : [runOf(name)];
  const box = document.getElementById("item-near");
  box.replaceChildren(
    ...chosen.map((run) =>
      el(
        "section",
        {},
        el("h3", {}, chosen.length > 1 ? `Nearest in ${visible(run.name)}` : "Nearest"),
        el("div", {}, loading("Loading what is near", NEIGHBOURS)),
      ),
    ),
  );
  await Promise.all(
    chosen.map(async (run, place) => {
      const holder = box.children[place].lastChild;
      try {
        const { items, step } = await get(
          "similar",
          { key: item.key, k: NEIGHBOURS, run: run.name },
          signal,
        );
        holder.replaceChildren(
          items.length
            ? itemRows(items, { run, open: (each) => openItem(each, run.name), what: "similarity" })
            : el("p", { class: "state" }, "Nothing is near."),
        );
        noticeStep(run.name, step);
      } catch (error) {
        if (!givenUp(error)) holder.replaceChildren(failure(error, () => drawNear(fresh())));
      }
    }),
  );
}
