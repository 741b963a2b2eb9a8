"""One door for all raw records: what a file holds is told by its content, not by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from torch import Tensor

from widemax.data.features.table import FeatureTable
from widemax.data.reading.classes import recoded
from widemax.data.reading.inputs import decoded, files_of, first_lines, head_of
from widemax.data.reading.interactions import read_interactions
from widemax.data.reading.logs import Columns
from widemax.data.reading.tables import PARQUET_MAGIC, TableKind, are_lists, is_atomic, is_regular
from widemax.data.reading.text import read_corpus
from widemax.data.sequences import Sequences
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key, quoted

SourceKind: TypeAlias = Literal["text"] | TableKind

KINDS: tuple[str, ...] = ("text", *get_args(TableKind))
"""The formats that are recognised."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was read: sequences of classes, and the keys of the classes.

    Formula: vocabulary.counts[y] = the number of y in sequences.values.

    Shapes: see ``Sequences`` and ``Vocabulary``; ``sequences.names`` holds the users of a log.
    ``columns`` names the columns that were read, None for text. ``goals`` is bool [T], beside
    ``sequences.values``, if a goal column was named. ``item_features`` has a row for each class,
    ``user_features`` one for each sequence, where there are any.

    Cost: it only holds what was read.

    Reference: none.

    Use when: reading what ``read_source`` returns. Avoid when: nothing else makes one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("7 31\\n7 12\\n8 31\\n")
    >>> source = read_source(path)
    >>> source.kind, source.sequences, source.vocabulary.decode([0])
    ('pairs', Sequences(2 sequences, 3 values), [31])
    """

    kind: SourceKind
    sequences: Sequences
    vocabulary: Vocabulary
    columns: Columns | None = None
    goals: Tensor | None = None
    item_features: FeatureTable | None = None
    user_features: FeatureTable | None = None


def recognise(path: str | Path) -> SourceKind:
    """Return what a file holds, told by the first 64 KB of its content.

    Formula: the first of these that is true:
    "parquet": it begins with PAR1;
    "atomic": every field of the first line, between tabs, is a name with a type, as in
    ``user_id:token``;
    "csv": every line has as many fields as the first, at least two, between tabs, commas or
    semicolons (whichever the first line has most of), and none of those in the first line is
    followed by a blank, as a comma in a sentence is;
    "lists": every word is a whole number, there are several lines, no two of them begin with the
    same one, and not all have two words: a user and his items;
    "pairs": every line has two words, and every word holds a digit;
    "text": anything else that is UTF-8 without NUL bytes.

    Shapes: none.

    Cost: one read of 64 KB; of a folder or a pattern, the first file is looked at.

    Reference: none.

    Use when: the format should not have to be said. Avoid when: the rules above decide wrongly
    (two words a line, as in "u7 i31", are a log, and "good morning" are text): then give ``kind``
    to ``read_source``.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "file"
    >>> for text in ("good morning", "u7 i31", "user,item\\n7,31", "well, then"):
    ...     _ = path.write_text(text)
    ...     print(recognise(path))
    text
    pairs
    csv
    text
    """
    first = files_of(path)[0]
    head = head_of(first)
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    text = decoded(first_lines(head), first)
    lines = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if not lines:
        raise ValueError(f"{first} is empty")
    if is_atomic(lines[0]):
        return "atomic"
    if is_regular(lines):
        return "csv"
    if are_lists(lines):
        return "lists"
    return "pairs" if all(map(_is_pair, lines)) else "text"


def read_source(
    path: str | Path,
    *,
    kind: SourceKind | None = None,
    user_column: str = "",
    item_column: str = "",
    time_column: str = "",
    goal_column: str = "",
    core: int = 0,
    min_count: int = 1,
    max_size: int | None = None,
    unknown: Key | None = None,
    min_length: int = 1,
    tokens: str | None = None,
    end: str | None = None,
    cache: bool = False,
) -> Source:
    """Read text or a log of interactions, whichever it is, as sequences of classes.

    Formula: of a log, what is not in the ``core`` goes first (``core_of``). Then keys seen fewer
    than ``min_count`` times, or beyond the ``max_size`` most frequent, go to ``unknown`` or,
    without it, out of their sequence; then sequences of fewer than ``min_length`` go; what is left
    is counted.

    Shapes: see ``Source``.

    Cost: that of ``read_corpus`` or ``read_interactions``.

    Reference: none.

    Use when: a file, a folder of files of one kind or a pattern is all there is to say; ``kind``
    overrides what ``recognise`` finds. The columns and ``core`` are for logs only; columns that are
    not given are guessed from the usual names, but for the goal. ``tokens`` and ``end`` are for
    text only, see ``read_corpus``. ``cache`` keeps what was read of a text beside it; a log is read
    anew each time. Avoid when: the records are in memory already.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "file"
    >>> _ = path.write_text("who,what\\nann,tea\\nbob,rum\\nann,rum\\n")
    >>> source = read_source(path, user_column="who", item_column="what")
    >>> source.vocabulary, source.sequences.names.to_list()
    (Vocabulary(2 keys, total 3: 'rum' 2, 'tea' 1), ['ann', 'bob'])
    """
    if kind is None:
        kind = recognise(path)
    elif kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    named = user_column or item_column or time_column or goal_column
    if kind != "text":
        for name, value in (("tokens", tokens), ("end", end)):
            if value is not None:
                raise ValueError(
                    f"{name} is for text, got {quoted(value)} for {path}, which is {kind}: "
                    'kind="text" reads it as sentences'
                )
        read = read_interactions(
            path,
            kind,
            user_column=user_column,
            item_column=item_column,
            time_column=time_column,
            goal_column=goal_column,
            core=core,
            min_count=min_count,
            max_size=max_size,
            unknown=unknown,
            min_length=min_length,
        )
        return Source(
            kind=kind,
            sequences=read.sequences,
            vocabulary=read.vocabulary,
            columns=read.columns,
            goals=read.goals,
        )
    if named:
        raise ValueError(
            f"{path} holds text, which has no column {named!r}: name its format with kind"
        )
    if core:
        raise ValueError(f"core is for logs, got {core!r} for {path}, which holds text")
    sequences, vocabulary = read_corpus(
        path, min_count=min_count, max_size=max_size, unknown=unknown, min_length=min_length,
        tokens=tokens, end=end, cache=cache,
    )  # fmt: skip
    return Source(kind=kind, sequences=sequences, vocabulary=vocabulary)


def encoded_again(source: Source, vocabulary: Vocabulary) -> Source:
    """Return a source with the classes of another vocabulary, and no others.

    Formula: a key that has no class there becomes the unknown key, or without one is left out, and
    with it its time and goal; a sequence of which nothing is left goes too.

    Shapes: see ``Source``.

    Cost: a few passes over the values.

    Reference: none.

    Use when: a model is judged on, or trained further with, data that it was not made for. Avoid
    when: the vocabulary is to be counted in the data.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("u7 i31\\nu7 i12\\nu8 i31\\n")
    >>> encoded_again(read_source(path), Vocabulary.count(["i31"])).sequences.lengths.tolist()
    [1, 1]
    """
    class_of = vocabulary.encode(source.vocabulary.keys, missing="mark")
    sequences, kept = recoded(source.sequences, class_of)
    rows = (sequences.lengths > 0).nonzero()[:, 0]
    if not len(rows):
        raise ValueError(f"the source has none of the {len(vocabulary):,} keys in it")
    goals = None if source.goals is None else source.goals[kept]
    return replace(source, sequences=sequences.chosen(rows), vocabulary=vocabulary, goals=goals)


def _is_pair(line: str) -> bool:
    words = line.split()
    return len(words) == 2 and all(any(map(str.isdigit, word)) for word in words)
