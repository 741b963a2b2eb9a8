"""A report as one HTML file that asks for nothing else: no network, no library."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files

from widemax.reporting.charts import COLOURS, Chart, is_ring

_NARROW = 4
"""Columns of a table that stands beside others; one with more takes the whole width."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a report."""

    title: str
    """Above it."""
    header: Sequence[str]
    """The names of its columns."""
    rows: Sequence[Sequence[str]]
    """Its cells, as they are shown."""
    about: str = ""
    """What the columns mean."""
    marked: Sequence[int] = ()
    """Rows that stand out."""
    folded: bool = False
    """Whether it is shown only when it is asked for: what is long, and looked up."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a report says, in the order in which it says it."""

    title: str
    """What it is about."""
    summary: Sequence[str]
    """The answer, in sentences."""
    parts: Sequence[Table | Chart] = field(default_factory=list)
    """Tables and plots."""
    command: str = ""
    """What was typed to make it."""
    versions: str = ""
    """Of the programs that made it."""


def to_html(page: Page) -> str:
    """Return a page as HTML; whatever it holds is shown as text.

    >>> text = to_html(Page(title="<b>", summary=["1 < 2"]))
    >>> "<b>" in text, "<p>1 &lt; 2</p>" in text
    (False, True)
    """
    style, script = (
        files("widemax.reporting").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'"
    )
    body = [f'<h1>{escape(page.title)}</h1><div class="summary">']
    body += [f"<p>{escape(sentence)}</p>" for sentence in page.summary]
    body.append('</div><div class="parts">')
    body += [_table(part) if isinstance(part, Table) else _chart(part) for part in page.parts]
    body.append("</div><footer>")
    if page.command:
        body.append(f"<p>Made by</p><pre>{escape(page.command)}</pre>")
    body.append(f"<p>{escape(page.versions)}</p></footer>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(page.title)}</title><style>{style}</style></head><body><main>"
        f"{''.join(body)}</main><script>{script}</script></body></html>\n"
    )


def to_markdown(page: Page) -> str:
    """Return the text and the tables of a page as Markdown; behind plots stand their figures.

    >>> print(to_markdown(Page(title="Race", summary=["nce won."],
    ...       parts=[Table(title="Places", header=["who"], rows=[["nce"]])])))
    # Race
    <BLANKLINE>
    nce won.
    <BLANKLINE>
    ## Places
    <BLANKLINE>
    | who |
    |---|
    | nce |
    <BLANKLINE>
    """
    blocks = [f"# {page.title}", *page.summary]
    for part in page.parts:
        blocks.append(f"## {part.title}")
        blocks += [part.about] if part.about else []
        rows = [part.header, ["---"] * len(part.header), *part.rows]
        blocks.append("\n".join(_markdown_row(row, rule=row is rows[1]) for row in rows))
    blocks += [f"Made by `{page.command}`"] if page.command else []
    return "\n\n".join([*blocks, *([page.versions] if page.versions else [])]) + "\n"


def _markdown_row(cells: Sequence[str], *, rule: bool) -> str:
    if rule:
        return f"|{'|'.join(cells)}|"
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _chart(chart: Chart) -> str:
    legend = "".join(
        f'<button type="button" data-series="{place}" aria-pressed="true">'
        f'<i class="{"ring" if is_ring(place) else "disc"}" '
        f'style="color:var(--c{place % COLOURS})"></i>{escape(name)}</button>'
        for place, name in enumerate(chart.names)
    )
    figures = _rows(chart.header, chart.rows)
    return (
        f"<section><h2>{escape(chart.title)}</h2><figure>{chart.svg}"
        f'<div class="legend">{legend}</div>'
        f"<figcaption>{escape(chart.about)}</figcaption></figure>"
        f"<details><summary>The figures</summary>{figures}</details></section>"
    )


def _table(table: Table) -> str:
    about = f"<p>{escape(table.about)}</p>" if table.about else ""
    rows = _rows(table.header, table.rows, table.marked) + about
    title = escape(table.title)
    if table.folded:
        inside = f'<details class="folded"><summary>{title}</summary>{rows}</details>'
    else:
        inside = f"<h2>{title}</h2>{rows}"
    wide = ' class="wide"' if table.folded or len(table.header) > _NARROW else ""
    return f"<section{wide}>{inside}</section>"


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]], marked: Sequence[int] = ()) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for number, row in enumerate(rows):
        chosen = ' class="marked"' if number in marked else ""
        lines.append(f"<tr{chosen}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="table"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
