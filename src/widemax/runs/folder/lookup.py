"""Finding an item by what people call it: its title, whole or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

_NEAREST = 3
# Titles stand in falling count of their items: who misspells one means a popular one.
_MOST_COMPARED = 20_000
_LONGEST_COMPARED = 200
_NEAR_WORD = 0.8
_WORD = re.compile(r"\w+")
_IN_BRACKETS = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*\Z")


def ids_of_title(lowered: Sequence[str], text: str) -> list[int]:
    """Return the rows of the titles, in small letters, that a text names in letters of any case.

    The first of these that there are: titles that are the text; that are it but for brackets at
    their end, such as a year; that begin with it; that contain it.

    >>> titles = ["toy story 2 (1999)", "toy story (1995)", "", "the story"]
    >>> [ids_of_title(titles, text) for text in ("Toy story", "toy", "story", "heat")]
    [[1], [0, 1], [0, 1, 3], []]
    """
    wanted = text.strip().lower()
    if not wanted:
        return []
    begin = [row for row, title in enumerate(lowered) if title.startswith(wanted)]
    return (
        [row for row in begin if lowered[row] == wanted]
        or [row for row in begin if _IN_BRACKETS.sub("", lowered[row]) == wanted]
        or begin
        or [row for row, title in enumerate(lowered) if wanted in title]
    )


def nearest_titles(titles: Sequence[str], text: str) -> list[str]:
    """Return the titles that are spelt most like a text, or have a word like it; at most three.

    >>> nearest_titles(["Toy Story (1995)", "Heat (1995)"], "Toi Story")
    ['Toy Story (1995)']
    >>> nearest_titles(["Snow White and the Seven Dwarfs", "Heat (1995)"], "wite")
    ['Snow White and the Seven Dwarfs']
    """
    known = [title for title in titles if title][:_MOST_COMPARED]
    # Of two that differ in their brackets alone the first, which is the more popular.
    titled = {_IN_BRACKETS.sub("", title.lower()): title for title in reversed(known)}
    wanted = text.strip().lower()
    # The comparison takes the product of the lengths, and nobody misspells a page.
    if len(wanted) > _LONGEST_COMPARED:
        return []
    if near := get_close_matches(wanted, titled, n=_NEAREST):
        return [titled[each] for each in near]
    # Most people name a long title by one word of it.
    holding: dict[str, list[str]] = {}
    for title in known:
        for word in set(_WORD.findall(title.lower())):
            holding.setdefault(word, []).append(title)
    word = get_close_matches(wanted, holding, n=1, cutoff=_NEAR_WORD)
    return holding[word[0]][:_NEAREST] if word else []
