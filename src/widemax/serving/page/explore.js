// Somebody's history, built by clicking, and what the runs recommend to them.

import { get, givenUp, latest, post, searchItems } from "./api.js";
import { combobox } from "./combobox.js";
import { el, failure, iconButton, loading, nameOf, titled, visible } from "./dom.js";
import { plural, popularity, score, whole } from "./format.js";
import { openItem } from "./item.js";
import { itemRows } from "./rows.js";
import {
  addToHistory,
  can,
  noticeStep,
  personFor,
  removeFromHistory,
  runOf,
  shownRuns,
  state,
  update,
} from "./state.js";

const MORE = 20,
  MOST = 100,
  START = 9;

// A run that does not have a feature is not filtered by it.
function filtersFor(run) {
  const names = new Set(run.features.map((each) => each.name));
  return Object.fromEntries(Object.entries(state.filters).filter(([name]) => names.has(name)));
}

function reasonOf(item, run) {
  const parts = [];
  if (item.reason) {
    parts.push("near ", el("b", {}, titled(item.reason)), ` (${score(item.reason.similarity)})`);
  } else {
    parts.push(popularity(item, run.num_items));
  }
  return parts;
}

export function exploreView(root) {
  const fresh = latest(),
    freshStart = latest(),
    freshUser = latest();
  const search = combobox({
    label: "Add an item",
    placeholder: "Search by title or key",
    find: (q, signal) => searchItems(q, { k: 8, run: state.run }, signal),
    show: (item) => [titled(item), el("span", { class: "dim" }, `${whole(item.count)}×`)],
    pick: (item) => (can("recommend") ? addToHistory(item) : openItem(item)),
  });
  const users = combobox({
    label: "Or take a user of the log",
    placeholder: "Search by user",
    find: async (q, signal) => ({
      found: (await get("users", { q, k: 8, run: state.run }, signal)).users,
    }),
    show: (user) => [
      el("bdi", {}, visible(user.user)),
      el("span", { class: "dim" }, plural(user.length, "item")),
    ],
    pick: takeUser,
  });
  const person = el("div", { class: "person" });
  // Where they would push what is recommended off the screen they are opened when asked for.
  const open = matchMedia("(min-width: 821px)").matches;
  const traits = el("details", { class: "filters", open });
  const filters = el("details", { class: "filters", open });
  const results = el("div", { class: "results" });
  const status = el("div", { class: "unseen", role: "status" });
  const title = el("h2", {}, "History");
  root.append(
    el(
      "div",
      { class: "columns" },
      el("div", { class: "card side" }, title, search.node, users.node, person, traits, filters),
      el("div", { class: "wide" }, results),
    ),
    status,
  );

  async function takeUser({ user }) {
    try {
      const found = await get("user", { user, run: state.run }, freshUser());
      update({ user: found.user, history: found.history });
    } catch (error) {
      if (!givenUp(error)) results.replaceChildren(failure(error, () => takeUser({ user })));
    }
  }

  function drawPerson() {
    const had = state.history;
    const kept = document.activeElement?.closest?.(".had");
    const place = kept ? [...kept.parentNode.children].indexOf(kept) : -1;
    person.hidden = !can("recommend");
    if (!had.length) {
      person.replaceChildren(
        el("p", { class: "dim" }, "Nothing yet. What you add stands here, the newest first."),
      );
      return;
    }
    const who =
      state.user === null
        ? plural(had.length, "item")
        : [el("bdi", {}, visible(state.user)), ` · ${plural(had.length, "item")}`];
    person.replaceChildren(
      el(
        "div",
        { class: "bar-of-title" },
        el("h3", {}, who),
        el(
          "button",
          {
            type: "button",
            class: "plain",
            onclick: () => {
              update({ history: [], user: null });
              search.input.focus();
            },
          },
          "Clear",
        ),
      ),
      el(
        "ol",
        { class: "history", reversed: true },
        had.toReversed().map((item) =>
          el(
            "li",
            { class: "had" },
            el(
              "button",
              { type: "button", class: "title", onclick: () => openItem(item) },
              titled(item),
            ),
            iconButton("remove", `Remove ${nameOf(item)}`, () => removeFromHistory(item.key)),
          ),
        ),
      ),
    );
    // Whoever removes by keyboard stays in the list.
    const rows = person.querySelectorAll(".had");
    if (place >= 0) rows[Math.min(place, rows.length - 1)].querySelector(".icon-button").focus();
  }

  // A list of the values of a feature; `chosen` is told which one, or undefined.
  function choice(feature, none, chosen) {
    return el(
      "label",
      { class: "field" },
      el("span", {}, visible(feature.name)),
      el(
        "select",
        { onchange: (event) => chosen(feature.values[event.target.selectedIndex - 1]) },
        el("option", {}, none),
        feature.values.map((value) => el("option", {}, visible(value))),
      ),
    );
  }

  function replaced(values, name, value) {
    const { [name]: _, ...rest } = values;
    return value === undefined ? rest : { ...rest, [name]: value };
  }

  function drawTraits() {
    const known = can("features") ? runOf().user_features.filter((each) => each.values.length) : [];
    traits.hidden = !can("recommend") || !(known.length || can("search"));
    traits.replaceChildren(
      el("summary", {}, "Somebody new"),
      ...known.map((feature) =>
        choice(feature, "unknown", (value) =>
          update({
            traits: replaced(
              state.traits,
              feature.name,
              value && feature.kind === "tokens" ? [value] : value,
            ),
          }),
        ),
      ),
      can("search")
        ? el(
            "label",
            { class: "field" },
            el("span", {}, "typed"),
            el("input", {
              class: "line",
              type: "text",
              maxlength: "200",
              onchange: (event) => update({ typed: event.target.value.trim() }),
            }),
          )
        : "",
    );
  }

  function drawFilters() {
    const choices = can("filter")
      ? runOf().features.filter((each) => each.kind !== "number" && each.values.length)
      : [];
    filters.hidden = !can("recommend");
    filters.replaceChildren(
      el("summary", {}, "Filter"),
      ...choices.map((feature) =>
        choice(feature, "any", (value) =>
          update({
            filters: replaced(
              state.filters,
              feature.name,
              value === undefined ? undefined : [value],
            ),
          }),
        ),
      ),
      el(
        "label",
        { class: "check" },
        el("input", {
          type: "checkbox",
          checked: state.includeSeen,
          onchange: (event) => update({ includeSeen: event.target.checked }),
        }),
        "include what they had",
      ),
    );
  }

  async function drawStart() {
    const run = runOf();
    const signal = freshStart();
    const box = el("div", { class: "card" });
    results.replaceChildren(box);
    const words = can("recommend")
      ? [
          "What would they like next?",
          "Add an item or two, and every one changes what is recommended. To begin with, these are chosen most often:",
        ]
      : [
          "What is near what?",
          "This run compares items and recommends nothing. Search for one, or look at one of the most frequent:",
        ];
    box.append(el("h2", {}, words[0]), el("p", {}, words[1]));
    const holder = el("div", {}, loading("Loading popular items"));
    box.append(holder);
    try {
      const { items } = await get("items", { q: "", k: START, run: run.name }, signal);
      holder.replaceChildren(
        el(
          "ul",
          { class: "tiles" },
          items.map((item) =>
            el(
              "li",
              {},
              el(
                "button",
                {
                  type: "button",
                  class: "tile",
                  "data-key": item.key,
                  onclick: () => (can("recommend") ? addToHistory(item) : openItem(item)),
                },
                titled(item),
                el("span", { class: "dim" }, `chosen ${whole(item.count)}×`),
              ),
            ),
          ),
        ),
      );
    } catch (error) {
      if (!givenUp(error)) holder.replaceChildren(failure(error, drawStart));
    }
  }

  async function drawResults() {
    const asked =
      state.history.length ||
      state.user !== null ||
      Object.keys(state.traits).length ||
      state.typed;
    if (!can("recommend") || !asked) {
      fresh();
      status.textContent = "";
      return drawStart();
    }
    freshStart();
    const signal = fresh();
    const runs = shownRuns().filter((run) => can("recommend", run));
    const columns = runs.map((run) => column(run, runs));
    const coming = columns.map((it) => it.ask(signal));
    const old = results.querySelectorAll(".recommended");
    // The old lists stay until new ones have come: nothing jumps.
    if (old.length === columns.length)
      old.forEach((each) => each.setAttribute("aria-busy", "true"));
    else
      results.replaceChildren(
        el(
          "div",
          { class: "beside" },
          columns.map((it) => it.node),
        ),
      );
    const answers = await Promise.all(coming);
    if (signal.aborted) return;
    columns.forEach((it, place) => it.draw(answers, place));
    if (!columns[0].node.isConnected) {
      const key = results.contains(document.activeElement)
        ? document.activeElement.dataset.key
        : undefined;
      results.replaceChildren(
        el(
          "div",
          { class: "beside" },
          columns.map((it) => it.node),
        ),
      );
      if (key !== undefined) restoreFocus(key);
    }
    const counts = answers.map((answer, place) =>
      answer.items
        ? `${answer.items.length} from ${runs[place].name}`
        : `none from ${runs[place].name}`,
    );
    status.textContent = `Recommendations: ${counts.join(", ")}.`;
  }

  // What was added leaves the list: the keyboard goes on at its first row.
  function restoreFocus(key) {
    const buttons = [...results.querySelectorAll(".row .icon-button")];
    (buttons.find((each) => each.dataset.key === key) ?? buttons[0])?.focus();
  }

  function column(run, runs) {
    const several = runs.length > 1;
    const list = el("div", {}, loading(`Loading what ${run.name} recommends`, state.k));
    const common = el("p", { class: "dim small" });
    const node = el(
      "section",
      { class: "card recommended", "aria-label": `Recommended by ${run.name}` },
      el(
        "div",
        { class: "bar-of-title" },
        el("h2", {}, several ? visible(run.name) : "Recommended"),
        el("span", { class: "chip" }, visible(run.model)),
      ),
      common,
      list,
    );

    async function ask(signal) {
      const body = {
        ...personFor(run),
        k: state.k,
        include_seen: state.includeSeen,
        filters: filtersFor(run),
      };
      try {
        return await post("recommend", body, signal);
      } catch (error) {
        return { error };
      }
    }

    function draw(answers, place) {
      const { items, step, error } = answers[place];
      if (error)
        return givenUp(error) ? undefined : list.replaceChildren(failure(error, drawResults));
      noticeStep(run.name, step);
      if (!items.length) {
        return list.replaceChildren(
          el("p", { class: "state" }, "Nothing is left to recommend under these conditions."),
        );
      }
      const there = answers.flatMap((answer, at) =>
        at !== place && answer.items ? [answer.items] : [],
      );
      const places = new Map(there.flat().map((item, at) => [item.key, at + 1]));
      if (several && there.length) {
        const same = items.filter((item) => places.has(item.key)).length;
        const names = runs
          .filter((each) => each !== run)
          .map((each) => visible(each.name))
          .join(", ");
        common.textContent = `${same} of ${items.length} also in ${names}`;
      }
      list.replaceChildren(
        itemRows(items, {
          run,
          open: (item) => openItem(item, run.name),
          note: (item) => reasonOf(item, run),
          under:
            several && there.length
              ? (item) => (places.has(item.key) ? `there: ${places.get(item.key)}` : "only here")
              : null,
        }),
        state.k < MOST && items.length >= state.k
          ? el(
              "button",
              {
                type: "button",
                class: "button more",
                onclick: () => update({ k: Math.min(MOST, state.k + MORE) }),
              },
              "Show more",
            )
          : "",
      );
    }
    return { node, ask, draw };
  }

  return { draw };

  function draw(changed) {
    const run = changed.has("run") || changed.has("runs");
    if (run) {
      title.textContent = can("recommend") ? "History" : "Search";
      search.node.querySelector("label").textContent = can("recommend")
        ? "Add an item"
        : "Find an item";
      users.node.hidden = !can("user");
      drawTraits();
      drawFilters();
    }
    if (run || changed.has("history") || changed.has("user")) drawPerson();
    const asked = [
      "run",
      "runs",
      "other",
      "history",
      "user",
      "traits",
      "typed",
      "filters",
      "includeSeen",
      "k",
    ];
    if (asked.some((name) => changed.has(name))) drawResults();
  }
}
