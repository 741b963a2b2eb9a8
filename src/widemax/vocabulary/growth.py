"""A vocabulary that goes on: the classes of an older run, and those that new data bring."""

from __future__ import annotations

import polars as pl

from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key


def grown(
    old: Vocabulary, found: Vocabulary, *, min_count: int = 1, unknown: Key | None = None
) -> Vocabulary:
    """Return the classes of both, counts added and ids in falling count again.

    Formula: a key is a class if it is one of ``old`` or was found ``min_count`` times; all other
    keys that were found are counted for the unknown key, if there is one.

    Shapes: none.

    Cost: O(V) for V keys of both.

    Reference: none.

    Use when: a run begins where another one ended, on other data. Avoid when: ids must stay as they
    are (``Vocabulary.grow``).

    >>> old = Vocabulary.from_counts(["tea", "rum"], [5, 1])
    >>> found = Vocabulary.count(["gin", "gin", "ale", "rum"])
    >>> grown(old, found, min_count=2)
    Vocabulary(3 keys, total 9: 'tea' 5, 'rum' 2, 'gin' 2)
    >>> grown(old, found, min_count=2, unknown="?").total
    10
    """
    if found.keys.dtype == old.keys.dtype:
        kept = found.table.filter(
            (pl.col("count") >= min_count) | pl.col("key").is_in(old.keys.implode())
        )
    else:
        kept = found.table  # which ``merge`` refuses, and says why
    unknown = old.unknown if unknown is None else unknown
    if unknown is not None:
        rest = found.total - int(kept["count"].sum())
        row = pl.DataFrame({"key": [unknown], "count": [rest]}, schema=kept.schema)
        kept = pl.concat([kept, row]).group_by("key", maintain_order=True).sum()
    return old.merge(Vocabulary(kept, unknown)) if kept.height else old
