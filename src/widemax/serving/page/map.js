// The catalogue as a map: every item a point, near what is like it.

import { bytes, get, givenUp, latest } from "./api.js";
import { combobox } from "./combobox.js";
import { el, failure, iconButton, nameOf, titled, visible } from "./dom.js";
import { plural, popularity, whole } from "./format.js";
import { Grid } from "./grid.js";
import { openItem } from "./item.js";
import { Scatter } from "./scatter.js";
import { can, runOf, state } from "./state.js";

const REACHES = [14, 60, 250, 1000, 4000];
const REACH = REACHES[0],
  NAMED = 10,
  FOUND = 50,
  LABELS = 8;
const OTHER = 255;

function colourOf(name) {
  const probe = el("i", { style: { color: `var(${name})` } });
  document.body.append(probe);
  const parts = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .map(Number);
  probe.remove();
  return parts.slice(0, 3);
}

export function mapView(root) {
  const canvas = el("canvas", { class: "points", "aria-hidden": "true" });
  const marks = el("canvas", { class: "marks", "aria-hidden": "true" });
  const tip = el("div", { class: "tip", hidden: true });
  const stage = el(
    "div",
    {
      class: "stage",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "map",
      "aria-label": "Map of the catalogue",
      "aria-describedby": "map-help",
    },
    canvas,
    marks,
    tip,
  );
  const cover = el("div", { class: "cover" });
  const spoken = el("div", { class: "unseen", role: "status" });
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Colours" });
  const colour = el("select", { onchange: () => loadColours() });
  const count = el("p", { class: "dim small" });
  const search = combobox({
    label: "Find on the map",
    placeholder: "Search by title or key",
    keep: true,
    find: (q, signal) => searchItems(q, { k: q ? FOUND : NAMED, run: state.run }, signal),
    show: (item) => [titled(item), el("span", { class: "dim" }, `${whole(item.count)}×`)],
    pick: (item) => show(item),
    found: (items, text) => {
      found = text ? items : [];
      drawMarks();
    },
  });
  const box = el(
    "div",
    { class: "card map" },
    el(
      "div",
      { class: "controls" },
      search.node,
      el("label", { class: "field" }, el("span", {}, "Colour by"), colour),
    ),
    el(
      "div",
      { class: "frame" },
      stage,
      cover,
      el(
        "div",
        { class: "zoom" },
        iconButton("add", "Zoom in", () => zoom(1.6)),
        iconButton("minus", "Zoom out", () => zoom(1 / 1.6)),
        iconButton("home", "Show everything", home),
      ),
    ),
    legend,
    count,
    el(
      "p",
      { class: "dim small", id: "map-help" },
      "Drag to move, scroll to zoom, click for an item. By keyboard: arrows move, + and − zoom, 0 shows everything, Enter opens the item in the middle.",
    ),
  );
  const without = el(
    "p",
    { class: "card state", hidden: true },
    "This run has no vectors of its items, and so no map.",
  );
  root.append(box, without, spoken);

  const fresh = latest(),
    freshColours = latest(),
    freshHover = latest();
  const known = new Map(); // rows whose items have been asked for
  let scatter = null,
    grid = null,
    loaded = null,
    found = [],
    chosen = null,
    hovered = -1,
    hidden = new Set();
  let names = [],
    kind = "category",
    hoverTimer = 0,
    inks = {};

  async function load() {
    const run = runOf();
    const mark = `${run.name} ${run.step}`;
    const there = can("map", run);
    box.hidden = !there;
    without.hidden = there;
    if (!there || loaded === mark) return;
    loaded = mark;
    known.clear();
    Object.assign(canvas.dataset, { ready: "", run: run.name });
    found = [];
    chosen = null;
    setHover(-1);
    const signal = fresh();
    const bar = el("progress", { "aria-label": "Loading the map", max: "1" });
    cover.replaceChildren(el("p", {}, `Loading ${plural(run.num_items, "point")} …`), bar);
    cover.hidden = false;
    colour.replaceChildren(
      el("option", { value: "popularity" }, "popularity"),
      ...run.features.map((feature) =>
        el("option", { value: feature.name }, visible(feature.name)),
      ),
    );
    const usual = run.features.find((feature) => feature.kind === "category");
    colour.value = usual ? usual.name : "popularity";
    try {
      const { buffer } = await bytes(
        "map",
        { run: run.name },
        {
          signal,
          progress: (part) => {
            bar.value = part;
          },
        },
      );
      const points = new Float32Array(buffer, 0, Math.floor(buffer.byteLength / 8) * 2);
      scatter ??= new Scatter(canvas, drawMarks);
      resize();
      scatter.view = { x: 0, y: 0, zoom: 1 };
      scatter.setPoints(points, new Uint8Array(points.length / 2).fill(OTHER));
      paint();
      grid = new Grid(points);
      cover.hidden = true;
      count.textContent = `${plural(points.length / 2, "item")}. Near each other is what the run takes for alike; the axes have no meaning of their own.`;
      await loadColours();
      canvas.dataset.ready = mark;
    } catch (error) {
      if (givenUp(error)) return;
      loaded = null;
      cover.replaceChildren(failure(error, load));
    }
  }

  async function loadColours() {
    const feature = colour.value;
    try {
      const { buffer, headers } = await bytes(
        "map/colour",
        { feature, run: state.run },
        { signal: freshColours() },
      );
      names = JSON.parse(decodeURIComponent(headers.get("x-names") ?? "%5B%5D"));
      kind =
        feature === "popularity"
          ? "popularity"
          : runOf().features.find((each) => each.name === feature)?.kind;
      hidden = new Set();
      scatter.setCodes(shortened(new Uint8Array(buffer), feature));
      paint();
    } catch (error) {
      if (!givenUp(error)) legend.replaceChildren(failure(error, loadColours));
    }
  }

  // More categories than can be told apart: the smaller ones are "other".
  function shortened(codes) {
    if (kind !== "category" && kind !== "tokens") return codes;
    const sizes = new Uint32Array(256);
    for (const code of codes) sizes[code]++;
    const first = names
      .map((_, code) => code)
      .sort((one, two) => sizes[two] - sizes[one])
      .slice(0, NAMED);
    const renamed = new Uint8Array(256).fill(OTHER);
    first.forEach((code, place) => {
      renamed[code] = place;
    });
    names = first.map((code) => names[code]);
    return codes.map((code) => renamed[code]);
  }

  function paletteNames() {
    if (kind === "popularity" || kind === "number")
      return names.map(
        (_, place) => `--r${Math.round((place * 4) / Math.max(1, names.length - 1))}`,
      );
    return names.map((_, place) => `--m${place}`);
  }

  function paint() {
    if (!scatter) return;
    const shades = paletteNames();
    const palette = new Uint8Array(1024);
    const grey = colourOf("--m-other");
    for (let code = 0; code < 256; code++)
      palette.set([...grey, hidden.has(OTHER) ? 0 : 255], 4 * code);
    shades.forEach((name, code) =>
      palette.set([...colourOf(name), hidden.has(code) ? 0 : 255], 4 * code),
    );
    inks = Object.fromEntries(
      ["--fg", "--stage", "--c0", "--c1"].map((name) => [name, `rgb(${colourOf(name).join(" ")})`]),
    );
    scatter.setPalette(palette, colourOf("--stage"));
    const entry = (code, name, shade) =>
      el(
        "button",
        {
          type: "button",
          "aria-pressed": String(!hidden.has(code)),
          onclick: () => {
            if (!hidden.delete(code)) hidden.add(code);
            paint();
            legend.querySelectorAll("button")[[...names.keys(), OTHER].indexOf(code)]?.focus();
          },
        },
        el("i", { style: { background: `var(${shade})` } }),
        el("bdi", {}, visible(name)),
      );
    const rest = scatter.codes.includes(OTHER);
    legend.replaceChildren(
      ...names.map((name, code) => entry(code, name, shades[code])),
      rest ? entry(OTHER, "other", "--m-other") : "",
    );
  }

  function placeOf(row) {
    const { points } = scatter;
    return scatter.toScreen(points[2 * row], points[2 * row + 1]);
  }

  // Rings and names over the points: the history, what was found, what is chosen.
  function drawMarks() {
    if (!scatter?.number) return;
    const context = marks.getContext("2d"),
      ratio = scatter.ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, marks.width, marks.height);
    context.font = `600 12px ${getComputedStyle(stage).fontFamily}`;
    context.lineWidth = 2;
    context.lineJoin = "round";
    const taken = [];
    const ring = (item, ink, named) => {
      if (item.row * 2 >= scatter.points.length) return;
      const [left, top] = placeOf(item.row);
      context.strokeStyle = inks[ink];
      context.beginPath();
      context.arc(left, top, 7, 0, 7);
      context.stroke();
      if (!named) return;
      const words = nameOf(item).slice(0, 32),
        wide = context.measureText(words).width;
      const right = left + 12 + wide > marks.width / ratio;
      const from = right ? left - 12 - wide : left + 12;
      if (taken.some(([x, y, w]) => Math.abs(y - top) < 16 && from < x + w && x < from + wide))
        return;
      taken.push([from, top, wide]);
      context.save();
      context.strokeStyle = inks["--stage"];
      context.lineWidth = 4;
      context.strokeText(words, from, top + 4);
      context.fillStyle = inks["--fg"];
      context.fillText(words, from, top + 4);
      context.restore();
    };
    if (chosen) ring(chosen, "--c1", true);
    found.forEach((item, place) => ring(item, "--c1", place < LABELS));
    state.history.forEach((item) => ring(item, "--c0", true));
    if (hovered >= 0) {
      const [left, top] = placeOf(hovered);
      context.strokeStyle = inks["--fg"];
      context.beginPath();
      context.arc(left, top, 6, 0, 7);
      context.stroke();
      tip.style.left = `${Math.max(8, Math.min(left + 12, stage.clientWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${top + 14 + tip.offsetHeight > stage.clientHeight ? top - 14 - tip.offsetHeight : top + 14}px`;
    }
  }

  const seen = (row) => !hidden.has(scatter.codes[row]);

  function rowAt(left, top, reach = REACH) {
    if (!grid) return -1;
    const [x, y] = scatter.toPoint(left, top);
    return grid.nearest(x, y, reach * scatter.one[0], reach * scatter.one[1], seen);
  }

  // A keyboard does not point: what is nearest to the middle is meant, however far it is.
  function middle() {
    for (const reach of REACHES) {
      const row = rowAt(stage.clientWidth / 2, stage.clientHeight / 2, reach);
      if (row >= 0) return row;
    }
    return -1;
  }

  async function itemAt(row, signal) {
    if (!known.has(row)) {
      const { items } = await get("items/rows", { rows: row, run: state.run }, signal);
      if (items.length) known.set(row, items[0]);
    }
    return known.get(row);
  }

  function setHover(row, speak = false) {
    if (row === hovered && !speak) return;
    hovered = row;
    clearTimeout(hoverTimer);
    const signal = freshHover();
    tip.hidden = true;
    if (scatter) drawMarks();
    if (row < 0) return;
    hoverTimer = setTimeout(
      async () => {
        try {
          const item = await itemAt(row, signal);
          if (!item || hovered !== row) return;
          tip.replaceChildren(
            el("b", {}, titled(item)),
            el("div", {}, popularity(item, runOf().num_items)),
          );
          tip.hidden = false;
          drawMarks();
          if (speak) spoken.textContent = `${nameOf(item)}, ${popularity(item, runOf().num_items)}`;
        } catch {
          // A name that does not come is not worth an alarm: the next hover asks again.
        }
      },
      known.has(row) ? 0 : 60,
    );
  }

  async function openRow(row) {
    if (row < 0) return;
    try {
      openItem(await itemAt(row));
    } catch (error) {
      spoken.textContent = error.message;
    }
  }

  function zoom(by) {
    scatter?.zoomAt(stage.clientWidth / 2, stage.clientHeight / 2, by);
  }

  function home() {
    scatter?.move({ x: 0, y: 0, zoom: 1 });
  }

  function show(item) {
    chosen = item;
    if (!scatter?.points || item.row * 2 >= scatter.points.length) return;
    scatter.move({
      x: scatter.points[2 * item.row],
      y: scatter.points[2 * item.row + 1],
      zoom: Math.max(6, scatter.view.zoom),
    });
    spoken.textContent = `${nameOf(item)} is in the middle of the map.`;
  }

  function resize() {
    if (!scatter || !stage.clientWidth) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    scatter.resize(stage.clientWidth, stage.clientHeight, ratio);
    marks.width = canvas.width;
    marks.height = canvas.height;
    drawMarks();
  }
  new ResizeObserver(resize).observe(stage);
  for (const query of ["(prefers-color-scheme: dark)"])
    matchMedia(query).addEventListener("change", paint);

  const fingers = new Map();
  const local = (event) => {
    const frame = stage.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  let dragged = 0;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    stage.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, local(event));
    if (fingers.size === 1) dragged = 0;
  });
  stage.addEventListener("pointermove", (event) => {
    if (!scatter) return;
    const [left, top] = local(event),
      last = fingers.get(event.pointerId);
    if (!last) return setHover(rowAt(left, top));
    const others = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    dragged += Math.hypot(left - last[0], top - last[1]);
    fingers.set(event.pointerId, [left, top]);
    if (others.length) {
      const [x, y] = others[0];
      const by = Math.hypot(left - x, top - y) / Math.max(1, Math.hypot(last[0] - x, last[1] - y));
      return scatter.zoomAt((left + x) / 2, (top + y) / 2, by);
    }
    const [wide, high] = scatter.one;
    scatter.move({
      ...scatter.view,
      x: scatter.view.x - (left - last[0]) * wide,
      y: scatter.view.y + (top - last[1]) * high,
    });
  });
  const lift = (event) => {
    const single = fingers.size === 1 && fingers.delete(event.pointerId);
    fingers.delete(event.pointerId);
    if (event.type === "pointerup" && single && dragged < 6) openRow(rowAt(...local(event)));
  };
  stage.addEventListener("pointerup", lift);
  stage.addEventListener("pointercancel", lift);
  stage.addEventListener("pointerleave", () => setHover(-1));
  stage.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      scatter?.zoomAt(
        ...local(event),
        Math.exp(-Math.max(-200, Math.min(200, event.deltaY)) / 300),
      );
    },
    { passive: false },
  );
  stage.addEventListener("keydown", (event) => {
    if (!scatter || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 0.15 / scatter.view.zoom,
      { x, y } = scatter.view;
    const moves = {
      ArrowLeft: [-step, 0],
      ArrowRight: [step, 0],
      ArrowUp: [0, step],
      ArrowDown: [0, -step],
    };
    if (event.key in moves)
      scatter.move({ ...scatter.view, x: x + moves[event.key][0], y: y + moves[event.key][1] });
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-" || event.key === "−") zoom(1 / 1.4);
    else if (event.key === "0" || event.key === "Home") home();
    else if (event.key === "Enter") openRow(middle());
    else return;
    event.preventDefault();
    if (event.key !== "Enter") setHover(middle(), true);
  });

  return {
    draw(changed) {
      if (state.view !== "map") return;
      if (changed.has("view") || changed.has("run") || changed.has("runs")) load();
      if (changed.has("view")) resize();
      drawMarks();
    },
    repaint: paint,
    async show(item) {
      await load();
      // The item is known by its key; its row is that of the run on the map.
      show(await get("item", { key: item.key, run: state.run }));
    },
  };
}
