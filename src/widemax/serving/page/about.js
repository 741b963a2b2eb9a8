// How a run was made, how it learned, how good it is and for which items.

import { chart, table } from "./charts.js";
import { el, toast, visible } from "./dom.js";
import { figure, whole } from "./format.js";
import { shownRuns, state } from "./state.js";

const GROUPS = ["head", "torso", "tail"];

export function aboutView(root) {
  return {
    draw(changed) {
      if (
        state.view !== "run" ||
        !["view", "run", "other", "runs"].some((name) => changed.has(name))
      )
        return;
      const runs = shownRuns();
      root.replaceChildren(
        el(
          "div",
          { class: "beside" },
          runs.map((run) => el("div", { class: "stack" }, facts(run), command(run))),
        ),
        el("div", { class: "charts" }, curves(runs), byPopularity(runs)),
        el(
          "div",
          { class: "beside" },
          runs.map((run) => figures(run)),
        ),
        el(
          "div",
          { class: "beside" },
          runs.map((run) => audit(run)),
        ),
      );
    },
  };
}

function facts(run) {
  const trained = run.trained ? new Date(run.trained) : null;
  const rows = [
    ["Model", visible(run.model)],
    [run.kind === "text" ? "Words" : "Items", whole(run.num_items)],
    run.num_users ? ["Users", whole(run.num_users)] : null,
    run.dimension ? ["Dimension", whole(run.dimension)] : null,
    ["Step", whole(run.step)],
    trained && !Number.isNaN(trained.valueOf())
      ? [
          "Trained",
          trained.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" }),
        ]
      : null,
  ].filter(Boolean);
  return el(
    "section",
    { class: "card", "aria-label": `Run ${run.name}` },
    el("h2", {}, visible(run.name)),
    el(
      "dl",
      { class: "tall facts" },
      rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
  );
}

function command(run) {
  if (!run.command) return "";
  return el(
    "section",
    { class: "card" },
    el(
      "div",
      { class: "bar-of-title" },
      el("h3", {}, "Made by"),
      el(
        "button",
        {
          type: "button",
          class: "plain",
          "aria-label": `Copy the command of ${run.name}`,
          onclick: async () => {
            try {
              await navigator.clipboard.writeText(run.command);
              toast("Copied.");
            } catch {
              toast("The browser does not let this page copy.");
            }
          },
        },
        "Copy",
      ),
    ),
    el("pre", { tabindex: "0" }, el("code", {}, visible(run.command))),
  );
}

function curves(runs) {
  const found = [];
  for (const name of new Set([...runs.map((run) => run.metric), "loss"])) {
    const series = runs
      .map((run) => ({
        name: run.name,
        points: run.validations
          .filter((row) => Number.isFinite(row[name]))
          .map((row) => [row.step, row[name], name === run.metric ? (row.standard_error ?? 0) : 0]),
      }))
      .filter(({ points }) => points.length > 1);
    if (!series.length) continue;
    const better = name === "loss" ? "Less is better." : "More is better.";
    const bars = series.some(({ points }) => points.some((point) => point[2]))
      ? " Bars are standard errors."
      : "";
    found.push(
      chart({
        title: `${visible(name)} in validation${runs.length > series.length ? ` of ${visible(series[0].name)}` : ""}`,
        about: better + bars,
        series,
        x: "step",
        y: visible(name),
      }),
    );
  }
  return found;
}

// The figure that a run was chosen by, or else the one it has.
function mainFigure(evaluation, metric) {
  const names = Object.keys(evaluation).filter((name) => `head_${name}` in evaluation);
  return (
    names.find((name) => name === metric) ??
    names.find((name) => name.startsWith("recall")) ??
    names[0]
  );
}

function byPopularity(runs) {
  const there = runs.filter((run) => run.evaluation && mainFigure(run.evaluation, run.metric));
  if (!there.length) return [];
  const name = mainFigure(there[0].evaluation, there[0].metric);
  const series = there.map((run) => ({
    name: run.name,
    points: GROUPS.map((group, place) => [place, run.evaluation[`${group}_${name}`]]).filter(
      ([, value]) => Number.isFinite(value),
    ),
  }));
  return [
    chart({
      title: `${name} by popularity`,
      series,
      groups: GROUPS,
      y: name,
      about:
        "How often the item is found, by how popular it is: head, torso and tail hold a third of all interactions each, the head in the fewest items.",
    }),
  ];
}

function figures(run) {
  if (!run.evaluation)
    return el(
      "section",
      { class: "card" },
      el("h3", {}, `Test of ${visible(run.name)}`),
      el("p", { class: "dim" }, "Not evaluated yet. How good it is on what was held out, says"),
      el("pre", { tabindex: "0" }, el("code", {}, `widemax evaluate ${visible(run.name)}`)),
    );
  const names = Object.keys(run.evaluation).filter(
    (name) => (name.includes("@") && !name.includes("_")) || name.startsWith("hit_rate"),
  );
  const lone = Object.keys(run.evaluation).filter(
    (name) => !name.includes("@") && name !== "step" && Number.isFinite(run.evaluation[name]),
  );
  const ks = [...new Set(names.map((name) => name.split("@")[1]))];
  const kinds = [...new Set(names.map((name) => name.split("@")[0]))];
  const cell = (name) =>
    Number.isFinite(run.evaluation[name]) ? run.evaluation[name].toFixed(4) : "–";
  return el(
    "section",
    { class: "card" },
    el("h3", {}, `Test of ${visible(run.name)}`),
    run.evaluation.protocol
      ? el("p", { class: "dim small" }, visible(run.evaluation.protocol))
      : "",
    names.length
      ? table(
          ["", ...ks.map((k) => `@${k}`)],
          kinds.map((kind) => [kind.replace("_", " "), ...ks.map((k) => cell(`${kind}@${k}`))]),
          `Test of ${visible(run.name)}`,
        )
      : "",
    lone.length
      ? table(
          ["", "value"],
          lone.map((name) => [visible(name), figure(run.evaluation[name])]),
          `More of the test of ${visible(run.name)}`,
        )
      : "",
  );
}

function bias(report, group) {
  const found = (group === "all" ? report.overall : report.groups[group])?.gradients?.[
    report.space
  ];
  return found ? [found.bias, (found.bias_high - found.bias_low) / 2] : null;
}

function audit(run) {
  const found = run.audit;
  if (!found)
    return el(
      "section",
      { class: "card" },
      el("h3", {}, `Audit of ${visible(run.name)}`),
      el(
        "p",
        { class: "dim" },
        "Not audited yet. How far its gradients are from those of the exact softmax, says",
      ),
      el("pre", { tabindex: "0" }, el("code", {}, `widemax audit ${visible(run.name)}`)),
    );
  const { report } = found;
  const parts = [
    el(
      "section",
      { class: "card" },
      el("h3", {}, `Audit of ${visible(run.name)}`),
      el("p", {}, el("span", { class: "chip" }, visible(found.verdict))),
      el("p", {}, visible(found.sentence)),
      ...(found.commands ?? []).map((each) =>
        el("pre", { tabindex: "0" }, el("code", {}, visible(each))),
      ),
    ),
  ];
  if (report?.overall?.gradients?.[report.space]) {
    const groups = ["all", ...Object.keys(report.groups)];
    const series = [
      { name: "as it is", report },
      ...(found.remedies ?? []).map((each) => ({ name: each.words, report: each.report })),
    ];
    parts.push(
      chart({
        title: "Bias of the gradient",
        groups,
        y: "relative bias",
        about: `How far the mean of a step’s gradient is from that of the exact softmax, by popularity of the target; bars are half-widths of 95 % intervals. Below ${report.tolerance} is taken for right.`,
        series: series.map(({ name, report: each }) => ({
          name,
          points: groups.flatMap((group, place) =>
            bias(each, group) ? [[place, ...bias(each, group)]] : [],
          ),
        })),
      }),
    );
  }
  if (found.by_samples) {
    const { num_samples: numbers, reports } = found.by_samples;
    const line = (name, value) => ({
      name,
      points: numbers.map((number, place) => [
        number,
        value(reports[place].overall.gradients[reports[place].space]),
      ]),
    });
    parts.push(
      chart({
        title: "Bias and variance against samples",
        about: "Both should fall like 1/S.",
        logX: true,
        logY: true,
        x: "samples S",
        y: "relative to the exact gradient",
        series: [line("bias", (each) => each.bias), line("variance", (each) => each.spread ** 2)],
      }),
    );
  }
  return el("div", { class: "stack" }, parts);
}
