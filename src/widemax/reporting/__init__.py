"""Reporting: one HTML file, or Markdown, that shows what a run or a comparison came to."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "charts": ["Chart", "Series", "bar_chart", "line_chart"],
        "page": ["Page", "Table", "to_html", "to_markdown"],
    },
)
