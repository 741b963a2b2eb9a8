// Charts as SVG, with the table of what they draw behind them.

import { axis, label } from "./axes.js";
import { el, svg, visible } from "./dom.js";
import { figure } from "./format.js";

const TOP = 12,
  LEFT = 60,
  RIGHT = 12,
  BOTTOM = 40,
  HEIGHT = 250;
const COLOURS = 8;

const colour = (place) => `var(--c${place % COLOURS})`;

function frame({ up, marks, x, y, width }) {
  const bottom = HEIGHT - BOTTOM;
  return [
    ...up.ticks.flatMap((value) => {
      const at = up.place(value).toFixed(1);
      return [
        svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
        svg("text", { x: LEFT - 8, y: Number(at) + 4, "text-anchor": "end" }, label(value)),
      ];
    }),
    svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }),
    ...marks.map(([at, text]) =>
      svg("text", { x: at.toFixed(1), y: bottom + 17, "text-anchor": "middle" }, text),
    ),
    svg(
      "text",
      { class: "name", x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" },
      x,
    ),
    svg(
      "text",
      {
        class: "name",
        transform: `translate(11 ${(TOP + bottom) / 2}) rotate(-90)`,
        "text-anchor": "middle",
      },
      y,
    ),
  ];
}

function tip(text) {
  return svg("title", {}, text);
}

function whisker(at, value, error, up, stroke) {
  return svg("line", {
    x1: at.toFixed(1),
    x2: at.toFixed(1),
    y1: up.place(Math.max(up.low, value - error)).toFixed(1),
    y2: up.place(value + error).toFixed(1),
    stroke,
    "stroke-opacity": "0.6",
  });
}

function reach(series) {
  return series.flatMap(({ points }) =>
    points.flatMap(([, value, error = 0]) => [value - error, value, value + error]),
  );
}

function drawLines(series, { x, y, width, logX, logY }) {
  const there = series.map((each) => ({
    ...each,
    points: each.points.filter(([at, value]) => (!logX || at > 0) && (!logY || value > 0)),
  }));
  const across = axis(
    there.flatMap(({ points }) => points.map(([at]) => at)),
    LEFT,
    width - RIGHT,
    { log: logX },
  );
  const up = axis(reach(there), HEIGHT - BOTTOM, TOP, { log: logY });
  const few = Math.max(2, Math.floor((width - LEFT) / 70));
  const ticks = across.ticks.filter(
    (_, place) => place % Math.ceil(across.ticks.length / few) === 0,
  );
  const parts = frame({
    up,
    x,
    y,
    width,
    marks: ticks.map((value) => [across.place(value), label(value)]),
  });
  there.forEach(({ name, points }, place) => {
    const at = points.map(([first, second]) => [across.place(first), up.place(second)]);
    if (at.length > 1) {
      parts.push(
        svg("polyline", {
          points: at.map((pair) => pair.map((each) => each.toFixed(1)).join(",")).join(" "),
          fill: "none",
          stroke: colour(place),
          "stroke-width": 2,
          "stroke-linejoin": "round",
        }),
      );
    }
    points.forEach(([first, second, error], number) => {
      if (error) parts.push(whisker(at[number][0], second, error, up, colour(place)));
      parts.push(
        svg(
          "circle",
          {
            cx: at[number][0].toFixed(1),
            cy: at[number][1].toFixed(1),
            r: 3.5,
            fill: colour(place),
          },
          tip(`${name}: ${figure(second)} at ${figure(first)}`),
        ),
      );
    });
  });
  return parts;
}

function drawBars(series, { groups, x, y, width }) {
  const up = axis(reach(series), HEIGHT - BOTTOM, TOP, { fromZero: true });
  const room = (width - LEFT - RIGHT) / groups.length;
  const wide = Math.min(56, (room * 0.76) / series.length);
  const middle = (group) => LEFT + room * (group + 0.5);
  const parts = frame({
    up,
    x,
    y,
    width,
    marks: groups.map((name, place) => [middle(place), visible(name)]),
  });
  series.forEach(({ name, points }, number) => {
    for (const [group, value, error] of points) {
      const left = middle(group) + (number - series.length / 2) * wide;
      const top = up.place(value);
      parts.push(
        svg(
          "rect",
          {
            x: (left + 1).toFixed(1),
            y: top.toFixed(1),
            width: (wide - 2).toFixed(1),
            height: Math.max(0, HEIGHT - BOTTOM - top).toFixed(1),
            rx: 2,
            fill: colour(number),
          },
          tip(`${groups[group]}, ${name}: ${figure(value)}`),
        ),
      );
      if (error) parts.push(whisker(left + wide / 2, value, error, up, "currentColor"));
    }
  });
  return parts;
}

// `series`: [{ name, points: [[x, y, error?], …] }]; with `groups` x is the number of a group.
export function chart({
  title,
  about,
  series,
  groups = null,
  x = "",
  y = "",
  logX = false,
  logY = false,
}) {
  const holder = el("div", { class: "plot" });
  const named = series.map((each) => ({ ...each, name: visible(each.name) }));
  function draw() {
    const width = Math.max(240, holder.clientWidth);
    const options = { groups, x, y, width, logX, logY };
    holder.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${about}` },
        groups ? drawBars(named, options) : drawLines(named, options),
      ),
    );
  }
  let drawn = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth && holder.clientWidth !== drawn) {
      drawn = holder.clientWidth;
      draw();
    }
  }).observe(holder);
  const rows = named.flatMap(({ name, points }) =>
    points.map(([at, value, error]) => [
      name,
      groups ? visible(groups[at]) : figure(at),
      figure(value),
      error ? `± ${figure(Number(error.toPrecision(2)))}` : "",
    ]),
  );
  return el(
    "figure",
    { class: "card" },
    el("h3", {}, title),
    holder,
    named.length > 1
      ? el(
          "ul",
          { class: "key" },
          named.map(({ name }, place) =>
            el("li", {}, el("i", { style: { background: colour(place) } }), name),
          ),
        )
      : null,
    el("figcaption", {}, about),
    el(
      "details",
      {},
      el("summary", {}, "The figures"),
      table(["", groups ? "group" : x, y, ""], rows, title),
    ),
  );
}

export function table(header, rows, name) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": name },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          header.map((cell) => (cell ? el("th", { scope: "col" }, cell) : el("td"))),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((cell, place) =>
              place ? el("td", {}, cell) : el("th", { scope: "row" }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}
