"""What changed: the figures of results/*.json now, beside those of an earlier commit.

    python benchmarks/page.py [--since HEAD] [--out FILE]

Prints a table in Markdown: value now, value then, their ratio, and the bar. A figure that only one
side has is named with a dash. Machines that differ are said first: times of two machines say
nothing about the code.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def stored(name: str, revision: str) -> dict[str, Any] | None:
    """Return a file of results as a commit has it; None if it has none."""
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{name}"], cwd=RESULTS, capture_output=True, text=True
    )
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def by_name(result: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {} if result is None else {figure["name"]: figure for figure in result["figures"]}


def line(name: str, now: dict[str, Any] | None, then: dict[str, Any] | None) -> str:
    """Return one row: a missed bar stands out, and so does a ratio that is not near 1."""
    latest = now or then
    assert latest is not None
    values = ["–" if each is None else f"{each['value']:,.4g}" for each in (now, then)]
    ratio = f"{now['value'] / then['value']:.2f}" if now and then and then["value"] else "–"
    bar = "" if latest["limit"] is None else f"{latest['direction']} {latest['limit']:g}"
    if now and not now["holds"]:
        bar = f"**missed: {bar}**"
    return f"| {name.replace('|', '/')} | {values[0]} | {values[1]} | {ratio} | {bar} |"


def page(revision: str) -> str:
    """Return the tables of all benchmarks that have results here."""
    parts = [f"# Figures now, and of {revision}", ""]
    for path in sorted(RESULTS.glob("*.json")):
        now, then = json.loads(path.read_text()), stored(path.name, revision)
        parts += [f"## {path.stem}", ""]
        if then is not None and now["machine"] != then["machine"]:
            changed = [k for k, v in now["machine"].items() if then["machine"].get(k) != v]
            parts += [f"Measured with another {', '.join(changed)}.", ""]
        parts += ["| figure | now | then | now / then | bar |", "|---|---:|---:|---:|---|"]
        figures, earlier = by_name(now), by_name(then)
        names = [*figures, *(name for name in earlier if name not in figures)]
        parts += [line(name, figures.get(name), earlier.get(name)) for name in names] + [""]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--since", default="HEAD", help="the commit to compare with")
    parser.add_argument("--out", type=Path, help="also write the page to this file")
    options = parser.parse_args()
    known = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{options.since}^{{commit}}"],
        cwd=RESULTS,
        capture_output=True,
    )
    if known.returncode != 0:
        parser.error(f"--since must be a commit of this repository, got {options.since!r}")
    text = page(options.since)
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
