// A field with suggestions, as the ARIA pattern "combobox with list" has it.

import { givenUp, latest } from "./api.js";
import { el, icon } from "./dom.js";
import { plural } from "./format.js";

const PAUSE = 120;
let number = 0;

// `find(text, signal)` returns the options found, or else the nearest; `show(option)` what stands in a
// row; `pick(option)` is called.
export function combobox({
  label,
  placeholder,
  find,
  show,
  pick,
  found = () => {},
  keep = false,
  unseen = false,
}) {
  const id = `combobox-${++number}`;
  const list = el("ul", {
    class: "options",
    role: "listbox",
    id: `${id}-list`,
    "aria-label": "Suggestions",
  });
  const nothing = el("div", { class: "nothing" });
  const popup = el("div", { class: "popup", hidden: true }, nothing, list);
  const status = el("div", { class: "unseen", role: "status" });
  const input = el("input", {
    id,
    type: "text",
    role: "combobox",
    placeholder,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    maxlength: "200",
  });
  const node = el(
    "div",
    { class: "combobox" },
    el("label", { for: id, class: unseen ? "unseen" : "label" }, label),
    el("div", { class: "box" }, icon("search"), input, popup),
    status,
  );
  const fresh = latest();
  let options = [],
    active = -1,
    timer = 0;

  function open(shown) {
    popup.hidden = !shown;
    input.setAttribute("aria-expanded", String(shown && options.length > 0));
    if (!shown) mark(-1);
  }

  function mark(place) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = place;
    const row = list.children[active];
    if (!row) return input.removeAttribute("aria-activedescendant");
    row.setAttribute("aria-selected", "true");
    row.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", row.id);
  }

  function choose(option) {
    clearTimeout(timer);
    fresh();
    open(false);
    if (!keep) input.value = "";
    pick(option);
  }

  function draw(text, { found: matching = [], nearest = [], error = null }) {
    options = matching.length ? matching : nearest;
    active = -1;
    list.replaceChildren(
      ...options.map((option, place) =>
        el(
          "li",
          {
            role: "option",
            id: `${id}-${place}`,
            "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(),
            onclick: () => choose(option),
          },
          show(option),
        ),
      ),
    );
    list.hidden = !options.length;
    nothing.hidden = matching.length > 0;
    nothing.textContent =
      error ?? (text ? `Nothing matches “${text}”.` : "There is nothing to choose from.");
    if (nearest.length) nothing.textContent += " Did you mean:";
    const number = options.length ? `${plural(options.length, "suggestion")}.` : "";
    status.textContent = nothing.hidden ? number : `${nothing.textContent} ${number}`.trim();
    open(document.activeElement === input);
    found(matching, text);
  }

  async function ask() {
    const text = input.value.trim();
    try {
      draw(text, await find(text, fresh()));
    } catch (error) {
      if (!givenUp(error)) draw(text, { error: error.message });
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  input.addEventListener("focus", ask);
  input.addEventListener("blur", () => {
    clearTimeout(timer);
    open(false);
  });
  input.addEventListener("click", () => {
    if (popup.hidden) ask();
  });
  input.addEventListener("keydown", (event) => {
    const shown = !popup.hidden && options.length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!shown) return void ask();
      const step = event.key === "ArrowDown" ? 1 : -1;
      const from = active < 0 && step < 0 ? options.length : active;
      mark((from + step + options.length) % options.length);
    } else if (event.key === "Enter" && shown) {
      event.preventDefault();
      choose(options[Math.max(0, active)]);
    } else if (event.key === "Escape" && (!popup.hidden || input.value)) {
      event.preventDefault();
      if (popup.hidden) {
        input.value = "";
        found([], "");
      }
      open(false);
    }
  });
  return { node, input };
}
