"""How Sphinx makes the site of these pages: ``make docs``, then open build/docs/index.html.

The pages are plain Markdown that also reads well where it lies. What the site needs differently is
done here: docstrings become reStructuredText, and links out of this folder lead to pages that
include what they name.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = ABOUT["name"]
release = version = ABOUT["version"]
author = ABOUT["authors"][0]["name"]
project_copyright = f"{author}, {ABOUT['license']}"

extensions = ["sphinx.ext.autodoc", "myst_parser"]
exclude_patterns = ["_build"]
# Greek letters and arrows of the formulas stay as they are written.
smartquotes = False

html_theme = "furo"
html_title = "widemax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    # A page from disk asks nobody: no fonts, no scripts from elsewhere.
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#8ab8f0", "color-brand-content": "#8ab8f0"},
}

# A heading of any depth can be linked to, as where the pages lie in the repository.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
# Torch's and numpy's types have their own sites: a build must not need the network.
nitpicky = False

ABOVE = ("contributing", "changelog", "security")
SECTION = re.compile(r"(?<!\S)(Formula|Shapes|Cost|Reference|Use when|Avoid when):")
MARKUP = re.compile(r"(``.+?``)|([|*`])|(?<=\w)(_)(?!\w)", re.DOTALL)


def as_rest(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: signs of formulas are no markup, sections stand out.

    >>> as_rest(["Formula: |x| of ``y*``."])
    ['**Formula:** \\\\|x\\\\| of ``y*``.']
    """
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(map(_paragraph, paragraphs)).split("\n")


def _paragraph(text: str) -> str:
    """Return a paragraph as reStructuredText; an example stays as it is."""
    if text.lstrip().startswith(">>>"):
        return text
    return SECTION.sub(r"**\1:**", MARKUP.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    """Return a sign that is no markup, or code, which must not end right before a letter."""
    if not found[1]:
        return "\\" + (found[2] or found[3])
    return found[1] + ("\\ " if re.match(r"[\w^]", found.string[found.end() :]) else "")


def _process(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    lines[:] = as_rest(lines)


def _leave_home(app: Any, docname: str, source: list[str]) -> None:
    """Show what lies above this folder as a page, and let links to it lead there."""
    above = ROOT / f"{docname.upper()}.md"
    if docname in ABOVE:
        text = above.read_text(encoding="utf-8").replace("](docs/", "](")
        # What is no page, such as an example, is named and not linked.
        source[0] = re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+(?<!\.md)\)", r"`\1`", text)
    source[0] = re.sub(
        rf"\]\((?:\.\./)+({'|'.join(ABOVE).upper()})\.md",
        lambda found: f"]({'../' * docname.count('/')}{found[1].lower()}.md",
        source[0],
    )
    # The empty line that ends a doctest is not shown.
    source[0] = re.sub(r"(^```python\n.*?)\n+^```$", r"\1\n```", source[0], flags=re.M | re.S)
    # A diagram is drawn by whoever shows the repository; here it stands as its text.
    source[0] = source[0].replace("```mermaid", "```text").replace("```console", "```text")


def setup(app: Any) -> dict[str, bool]:
    """Register what this file does beside its settings."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("source-read", _leave_home)
    return {"parallel_read_safe": True}
