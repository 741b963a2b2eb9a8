"""Options and traits of methods in several rooms."""

from __future__ import annotations

from widemax.declarations.options import Option

UNORDERED = "unordered"
"""The trait of formats whose items have no order, and the key of what is usual with such data."""

ITEM_FEATURES = Option(
    "item_features",
    "",
    "File with features of items; empty takes the .item file beside an .inter file.",
    group="Data",
)
FEATURE_DIMENSION = Option(
    "feature_dimension",
    16,
    "Length of the vector of each feature of users or items.",
    least=1,
    most=65_536,
    of_features=True,
)
