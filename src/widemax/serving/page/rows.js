// Lists of items, as recommendations and neighbours show them.

import { el, iconButton, nameOf, titled } from "./dom.js";
import { popularity, score } from "./format.js";
import { addToHistory, can, isInHistory, removeFromHistory } from "./state.js";

export function historyButton(item) {
  const there = isInHistory(item.key);
  const label = there
    ? `Take ${nameOf(item)} out of the history`
    : `Add ${nameOf(item)} to the history`;
  return iconButton(
    there ? "done" : "add",
    label,
    () => (there ? removeFromHistory(item.key) : addToHistory(item)),
    { "aria-pressed": String(there), "data-key": item.key },
  );
}

// Lengths of bars: the best is full, the last is short, whatever unit the scores have.
function shares(items) {
  const values = items.map((item) => item.score).filter(Number.isFinite);
  const high = Math.max(...values),
    low = Math.min(...values);
  return (value) => (high > low ? 0.15 + 0.85 * ((value - low) / (high - low)) : 1);
}

export function itemRows(items, { run, open, note = () => null, under = null, what = "score" }) {
  const share = shares(items);
  return el(
    "ol",
    { class: "rows" },
    items.map((item, place) =>
      el(
        "li",
        { class: "row", "data-key": item.key },
        el("span", { class: "place", "aria-hidden": "true" }, String(place + 1)),
        el(
          "div",
          { class: "words" },
          el("button", { type: "button", class: "title", onclick: () => open(item) }, titled(item)),
          el("div", { class: "note" }, note(item) ?? popularity(item, run.num_items)),
        ),
        el(
          "div",
          { class: "value" },
          el(
            "span",
            { class: "number" },
            el("span", { class: "unseen" }, `${what} `),
            score(item.score),
          ),
          el(
            "span",
            { class: "bar", "aria-hidden": "true" },
            el("i", { style: { width: `${(100 * share(item.score)).toFixed(1)}%` } }),
          ),
          under ? el("span", { class: "under" }, under(item)) : null,
        ),
        can("recommend", run) ? historyButton(item) : null,
      ),
    ),
  );
}
