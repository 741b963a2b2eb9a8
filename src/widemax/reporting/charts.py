"""Charts as SVG: drawn once, without a library, so that a page can be read and printed anywhere.

Colours are those of the page's style (``--c0`` …), so that one drawing is right in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from widemax.reporting.axes import Axis, axis_of, label_of

WIDTH, HEIGHT = 560, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 14, 14, 54
COLOURS = 8
_DASHES = ("", "6 4", "2 3", "9 3 2 3")


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a chart: points, and how uncertain each is."""

    name: str
    """Shown in the legend."""
    points: Sequence[tuple[float, float]]
    """x and y."""
    errors: Sequence[float] = ()
    """A standard error for each point, or none."""
    line: bool = True
    """Whether points are joined."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plot with the table behind it."""

    title: str
    """What it shows."""
    about: str
    """What it says, for those who see it and those who do not."""
    svg: str
    """The drawing."""
    names: Sequence[str] = ()
    """The series, in the order of their colours; none where no legend is needed."""
    header: Sequence[str] = ()
    """The columns of the table."""
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    """The figures that were drawn."""


def line_chart(
    title: str,
    about: str,
    series: Sequence[Series],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
    from_zero: bool = False,
) -> Chart:
    """Return lines over numbers; what a logarithmic axis cannot show is left out.

    >>> chart = line_chart("Loss", "It falls.", [Series(name="nce", points=[(1, 3), (2, 2)])],
    ...                    x="step", y="loss")
    >>> chart.header, chart.rows
    (['series', 'step', 'loss', '±'], [['nce', '1', '3', ''], ['nce', '2', '2', '']])
    """
    drawn = [_shown(each, log_x=log_x, log_y=log_y) for each in series]
    points = [point for each in drawn for point in each.points]
    across = axis_of([each[0] for each in points], _LEFT, WIDTH - _RIGHT, log=log_x)
    up = axis_of(_reach(drawn), HEIGHT - _BOTTOM, _TOP, log=log_y, from_zero=from_zero)
    parts = [*_frame(across, up, x, y)]
    for place, each in enumerate(drawn):
        parts += _line(each, place, across, up)
    rows = [
        [each.name, _figure(point[0]), _figure(point[1]), _error(each, place)]
        for each in series
        for place, point in enumerate(each.points)
    ]
    return Chart(
        title=title,
        about=about,
        svg=_svg(title, about, parts),
        names=[each.name for each in series] if len(series) > 1 else [],
        header=["series", x, y, "±"],
        rows=rows,
    )


def bar_chart(
    title: str,
    about: str,
    groups: Sequence[str],
    series: Sequence[Series],
    *,
    y: str,
) -> Chart:
    """Return bars in groups; the points of a series are (number of the group, height).

    >>> chart = bar_chart("Recall", "Rare items are hard.", ["head", "tail"],
    ...                   [Series(name="sasrec", points=[(0, 0.4), (1, 0.1)])], y="recall@20")
    >>> chart.rows
    [['head', 'sasrec', '0.4', ''], ['tail', 'sasrec', '0.1', '']]
    """
    across = Axis(-0.5, len(groups) - 0.5, _LEFT, WIDTH - _RIGHT)
    up = axis_of(_reach(series), HEIGHT - _BOTTOM, _TOP, from_zero=True)
    parts = [*_frame(across, up, "", y, x_labels=groups)]
    # A bar of few is not a wall.
    wide = min(0.8 / max(1, len(series)), 0.35)
    for number, each in enumerate(series):
        for place, (group, value) in enumerate(each.points):
            start = group + (number - len(series) / 2) * wide
            left, right = across.place(start), across.place(start + 0.92 * wide)
            top = up.place(value)
            tip = escape(f"{groups[int(group)]}, {each.name}: {_figure(value)}", quote=True)
            parts.append(
                f'<rect class="s s{number}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{right - left:.1f}" height="{HEIGHT - _BOTTOM - top:.1f}" '
                f'fill="var(--c{number % COLOURS})" data-tip="{tip}"/>'
            )
            if place < len(each.errors) and each.errors[place]:
                middle = (left + right) / 2
                parts.append(_whisker(number, middle, value, each.errors[place], up))
    rows = [
        [groups[int(point[0])], each.name, _figure(point[1]), _error(each, place)]
        for each in series
        for place, point in enumerate(each.points)
    ]
    return Chart(
        title=title,
        about=about,
        svg=_svg(title, about, parts),
        names=[each.name for each in series] if len(series) > 1 else [],
        header=["group", "series", y, "±"],
        rows=rows,
    )


def _reach(series: Sequence[Series]) -> list[float]:
    """Return all heights, and those that errors reach up and down to."""
    found = []
    for each in series:
        errors = each.errors or [0.0] * len(each.points)
        for (_, value), error in zip(each.points, errors, strict=True):
            found += [value - error, value, value + error]
    return found


def _shown(series: Series, *, log_x: bool, log_y: bool) -> Series:
    kept = [
        place
        for place, (x, y) in enumerate(series.points)
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]
    return Series(
        name=series.name,
        points=[series.points[place] for place in kept],
        errors=[series.errors[place] for place in kept] if series.errors else (),
        line=series.line,
    )


def _svg(title: str, about: str, parts: Sequence[str]) -> str:
    label = escape(f"{title}. {about}", quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _frame(
    across: Axis, up: Axis, x: str, y: str, *, x_labels: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the grid, the labels of the axes and their names."""
    bottom = HEIGHT - _BOTTOM
    for value in up.ticks():
        at = up.place(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label_of(value)}</text>'
    if x_labels:
        marks = [(across.place(place), escape(name)) for place, name in enumerate(x_labels)]
    else:
        marks = [(across.place(value), label_of(value)) for value in across.ticks()]
    for at, label in marks:
        yield f'<text x="{at:.1f}" y="{bottom + 20}" text-anchor="middle">{label}</text>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield (
        f'<text class="name" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>'
    )
    height = (_TOP + bottom) / 2
    yield (
        f'<text class="name up" transform="translate(14 {height:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>'
    )


def is_ring(place: int) -> bool:
    """Return whether the marks of a series are rings, as a colour that comes again needs.

    >>> is_ring(0), is_ring(COLOURS), is_ring(2 * COLOURS)
    (False, True, False)
    """
    return place // COLOURS % 2 == 1


def _line(series: Series, place: int, across: Axis, up: Axis) -> Iterator[str]:
    colour = f"var(--c{place % COLOURS})"
    dash, ring = _DASHES[place // COLOURS % len(_DASHES)], is_ring(place)
    at = [(across.place(x), up.place(y)) for x, y in series.points]
    yield f'<g class="s s{place}">'
    if series.line and len(at) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
    for number, ((x, y), (first, second)) in enumerate(zip(at, series.points, strict=True)):
        if number < len(series.errors) and series.errors[number]:
            yield _whisker(place, x, second, series.errors[number], up, colour)
        tip = escape(f"{series.name}: {_figure(second)} at {_figure(first)}", quote=True)
        size = 3.5 if series.line else 6
        inside = f'fill="{colour}"'
        if ring:
            inside = f'fill="var(--card)" stroke="{colour}" stroke-width="2"'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {inside} data-tip="{tip}"/>'
    yield "</g>"


def _whisker(
    place: int, x: float, value: float, error: float, up: Axis, colour: str = "currentColor"
) -> str:
    low = max(value - error, up.low)
    return (
        f'<line class="s s{place}" x1="{x:.1f}" x2="{x:.1f}" y1="{up.place(low):.1f}" '
        f'y2="{up.place(value + error):.1f}" stroke="{colour}" stroke-opacity="0.45"/>'
    )


def _figure(value: float) -> str:
    """Return a number with what digits it is worth.

    >>> _figure(1234567.0), _figure(0.123456), _figure(12.0)
    ('1,234,567', '0.1235', '12')
    """
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _error(series: Series, place: int) -> str:
    return f"{series.errors[place]:.2g}" if place < len(series.errors) else ""
