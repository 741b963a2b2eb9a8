// Elements made of text and attributes only: nothing that comes from a run is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Control characters, and those that turn the direction of what follows, are shown as escapes.
export function visible(text) {
  return String(text).replace(
    /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (char) => {
      const code = char.charCodeAt(0).toString(16);
      return code.length > 2 ? `\\u${code}` : `\\x${code.padStart(2, "0")}`;
    },
  );
}

export function nameOf(item) {
  return visible(
    item.title === null || item.title === undefined || item.title === "" ? item.key : item.title,
  );
}

// A title in its own direction, which does not turn the text around it.
export function titled(item, attributes = {}) {
  return el("bdi", attributes, nameOf(item));
}

const ICONS = {
  add: "M10 4v12M4 10h12",
  remove: "M5 5l10 10M15 5L5 15",
  back: "M12 4l-6 6 6 6",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.500 13.500L17.500 17.500",
  light:
    "M10 13.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM10 1.500v2M10 16.500v2M1.500 10h2M16.500 10h2M4 4l1.400 1.400M14.600 14.600L16 16M16 4l-1.400 1.400M5.400 14.600L4 16",
  dark: "M16.500 12A7 7 0 0 1 8 3.500a7 7 0 1 0 8.500 8.500z",
  system: "M3 4h14v9H3zM7 17h6M10 13v4",
  minus: "M4 10h12",
  home: "M3 9V3h6M17 11v6h-6M3 3l5.500 5.500M17 17l-5.500-5.500",
  done: "M4 10.500l4 4 8-9",
};

export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true" },
    svg("path", { d: ICONS[name] }),
  );
}

export function iconButton(name, label, onclick, attributes = {}) {
  return el(
    "button",
    {
      type: "button",
      class: "icon-button",
      "aria-label": label,
      title: label,
      onclick,
      ...attributes,
    },
    icon(name),
  );
}

export function loading(label, rows = 6) {
  return el(
    "div",
    { class: "skeleton", role: "status" },
    el("span", { class: "unseen" }, label),
    Array.from({ length: rows }, () => el("div", { class: "bone" })),
  );
}

export function failure(error, again) {
  return el(
    "div",
    { class: "notice bad", role: "alert" },
    el("p", {}, visible(error.message)),
    error.suggestions?.length
      ? el("p", { class: "dim" }, `Meant: ${error.suggestions.map(visible).join(", ")}?`)
      : null,
    again ? el("button", { type: "button", class: "button", onclick: again }, "Try again") : null,
  );
}

let toastTimer = 0;

export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = visible(text);
  box.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    box.classList.remove("shown");
  }, 4000);
}
