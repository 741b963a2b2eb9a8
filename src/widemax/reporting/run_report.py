"""The report of a run: how it learned, how good it is and for which items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from widemax.config.fitting import switched_off
from widemax.evaluation import RecommendationReport
from widemax.reporting.audit_charts import audit_charts
from widemax.reporting.charts import Chart, Series, bar_chart, line_chart
from widemax.reporting.page import Page, Table
from widemax.reporting.versions import versions
from widemax.runs.run import Run

_KS = (10, 20)


def run_page(run: Run, command: str = "") -> Page:
    """Return the report of a trained run."""
    parts: list[Table | Chart] = []
    summary = [
        f"Model {run.config.model}, {len(run.vocabulary):,} classes, step {run.step:,} "
        f"({run.chosen})."
    ]
    rows = run.metrics
    if run.data.source == "log" and run.has_test:
        report = run.evaluate_recommendations(ks=_KS)
        summary.append(f"Test: {run.protocol}; {report.users:,} users.")
        parts += [_figures(report), *_by_popularity(report)]
    elif run.has_test:
        found = run.evaluate().metrics()
        names = list(found)
        parts.append(
            Table(title="Test", header=names, rows=[[f"{found[name]:.4f}" for name in names]])
        )
    parts += _curves(rows, str(run.config.metric))
    audit = run.stored_audit()
    if audit is not None:
        summary.append(f"Audit: {audit['verdict']}. {audit['sentence']}")
        parts += audit_charts(audit)
    parts.append(_settings(run))
    return Page(
        title=f"Run {run.folder.resolve().name}",
        summary=[*summary, *([run.looks_ahead] if run.looks_ahead else [])],
        parts=parts,
        command=command,
        versions=versions(),
    )


def _figures(report: RecommendationReport) -> Table:
    header = ["", *(f"@{k}" for k in report.ks)]
    rows = [list(row) for row in report.table() if "_" not in row[0] or row[0] == "hit_rate"]
    return Table(title="Test", header=header, rows=rows, about="± is a standard error.")


def _by_popularity(report: RecommendationReport) -> list[Chart]:
    if not report.buckets:
        return []
    k = report.ks[-1]
    name = f"recall@{k}"
    groups = [bucket.name for bucket in report.buckets]
    means = [bucket.means[name] for bucket in report.buckets]
    series = Series(
        name="recall",
        points=[(place, mean.value) for place, mean in enumerate(means)],
        errors=[mean.standard_error or 0.0 for mean in means],
    )
    about = (
        "How often the item is found, by how popular it is: head, torso and tail hold a third of "
        "all interactions each, the head in the fewest items."
    )
    return [bar_chart(f"{name} by popularity", about, groups, [series], y=name)]


def _curves(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Chart]:
    charts = []
    for name in dict.fromkeys((metric, "loss")):
        points = [(row["step"], row[name]) for row in rows if _is_number(row.get(name))]
        if len(points) < 2:
            continue
        errors = [
            row.get("standard_error") or 0.0
            for row in rows
            if name == metric and _is_number(row.get(name))
        ]
        best = "less" if name == "loss" else "more"
        charts.append(
            line_chart(
                f"{name} in validation",
                f"{best.capitalize()} is better. Bars are standard errors."
                if name == metric
                else f"{best.capitalize()} is better.",
                [Series(name=name, points=points, errors=errors)],
                x="step",
                y=name,
            )
        )
    return charts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _settings(run: Run) -> Table:
    config = run.config
    rows = [
        [name, str(config.values[name])]
        for name, option in config.options.items()
        if not switched_off(option, config.values)
    ]
    return Table(title="Settings", header=["setting", "value"], rows=rows, folded=True)
