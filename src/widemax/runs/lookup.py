"""Finding an item by what people call it: its title, whole or in part."""

from __future__ import annotations

from difflib import get_close_matches

import polars as pl

_NEAREST = 3
# Titles stand in falling count of their items: who misspells one means a popular one.
_MOST_COMPARED = 20_000
_IN_BRACKETS = r"\s*[(\[][^()\[\]]*[)\]]\s*$"


def ids_of_title(titles: pl.Series, text: str) -> list[int]:
    """Return the rows of the titles that a text names, whatever the case of its letters.

    The first of these that there are: titles that are the text; that are it but for brackets at
    their end, such as a year; that begin with it; that contain it.

    >>> titles = pl.Series(["Toy Story 2 (1999)", "Toy Story (1995)", None, "The Story"])
    >>> [ids_of_title(titles, text) for text in ("toy story", "toy", "story", "heat")]
    [[1], [0, 1], [0, 1, 3], []]
    """
    wanted = text.strip().lower()
    if not wanted:
        return []
    lowered = titles.str.to_lowercase()
    for found in (
        lowered == wanted,
        lowered.str.replace(_IN_BRACKETS, "") == wanted,
        lowered.str.starts_with(wanted),
        lowered.str.contains(wanted, literal=True),
    ):
        rows = found.fill_null(False).arg_true().to_list()
        if rows:
            return rows
    return []


def nearest_titles(titles: pl.Series, text: str) -> list[str]:
    """Return the titles that are spelt most like a text, at most three.

    >>> nearest_titles(pl.Series(["Toy Story (1995)", "Heat (1995)"]), "Toi Story")
    ['Toy Story (1995)']
    """
    known = titles.drop_nulls().head(_MOST_COMPARED)
    plain = known.str.to_lowercase().str.replace(_IN_BRACKETS, "")
    # Of two that differ in their brackets alone the first, which is the more popular.
    titled = dict(zip(reversed(plain.to_list()), reversed(known.to_list()), strict=True))
    return [titled[each] for each in get_close_matches(text.strip().lower(), titled, n=_NEAREST)]
