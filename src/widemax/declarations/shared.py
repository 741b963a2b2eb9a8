"""Options of methods in several rooms."""

from __future__ import annotations

from widemax.declarations.options import Option

ITEM_FEATURES = Option(
    "item_features",
    "",
    "File with features of items; empty takes the .item beside an .inter.",
    group="Data",
)
