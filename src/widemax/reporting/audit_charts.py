"""What an audit found, as charts: by popularity, and against the number of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from widemax.reporting.charts import Chart, Series, bar_chart, line_chart

Report = Mapping[str, Any]


def audit_charts(audit: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of an audit as ``run.stored_audit`` has it."""
    charts = []
    report = audit["report"]
    reports = {"as it is": report} | {each["words"]: each["report"] for each in audit["remedies"]}
    groups = ["all", *report["groups"]]
    if report["space"] in report["overall"]["gradients"]:
        series = [
            Series(
                name=name,
                points=[(place, _bias(each, group)[0]) for place, group in enumerate(groups)],
                errors=[_bias(each, group)[1] for group in groups],
            )
            for name, each in reports.items()
        ]
        charts.append(
            bar_chart(
                "Bias of the gradient, by popularity of the target",
                "How far the mean of a step's gradient is from that of the exact softmax, as a "
                "share of its length; bars are half-widths of 95 % intervals. Below "
                f"{report['tolerance']:g} is taken for right.",
                groups,
                series,
                y="relative bias",
            )
        )
    if audit["by_samples"]:
        charts.append(_against_samples(audit["by_samples"]))
    return charts


def _bias(report: Report, group: str) -> tuple[float, float]:
    """Return the bias of a group, and the half-width of its interval."""
    figures = report["overall"] if group == "all" else report["groups"].get(group, {})
    found = figures.get("gradients", {}).get(report["space"])
    if found is None:
        return 0.0, 0.0
    return found["bias"], (found["bias_high"] - found["bias_low"]) / 2


def _against_samples(found: Mapping[str, Any]) -> Chart:
    points: dict[str, list[tuple[float, float]]] = {"bias": [], "variance": []}
    for number, report in zip(found["num_samples"], found["reports"], strict=True):
        figures = report["overall"]["gradients"][report["space"]]
        points["bias"].append((number, figures["bias"]))
        points["variance"].append((number, figures["spread"] ** 2))
    said = [
        f"{name} falls like S to the power of {slope['value']:.2f} "
        f"(95 %: {slope['low']:.2f} to {slope['high']:.2f})"
        for name, slope in found["slopes"].items()
        if slope
    ]
    return line_chart(
        "Bias and variance against the number of samples",
        f"{'; '.join(said) or 'Both should fall like 1/S'}.".replace("bias", "Bias", 1),
        [Series(name=name, points=each) for name, each in points.items()],
        x="samples S",
        y="relative to the exact gradient",
        log_x=True,
        log_y=True,
    )
