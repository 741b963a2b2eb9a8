"""Data that come split already: files for training, for validation and for the test."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from widemax.data.reading.files import files_of
from widemax.data.reading.logs import Columns, scan_log
from widemax.data.reading.numbering import NO_LIMITS, Coded, Limits, classes_of, numbered
from widemax.data.reading.tables import TEXT
from widemax.data.reading.text import encode_corpus, read_corpus
from widemax.data.sequences import Sequences
from widemax.data.source import Source
from widemax.kernels.data.grouping import MAX_ROWS, grouped
from widemax.validation import check_whole

# As a whole word of a name: "contest.csv" is no test, and "train.part2.csv" is for training.
_WORDS = (
    r"(?<![a-z])(?:train|training)(?![a-z])|\.part1\.",
    r"(?<![a-z])(?:valid|validation|val|dev)(?![a-z])|\.part2\.",
    r"(?<![a-z])(?:test|testing)(?![a-z])|\.part3\.",
)


class PartFiles(NamedTuple):
    """Where the parts of some data are, each a file, a folder or a pattern."""

    train: Path
    """What is trained on."""
    validation: Path | None
    """What chooses; None: some of the training part does."""
    test: Path
    """What is asked at the end."""


def part_files(path: str | Path, validation: str = "", test: str = "") -> PartFiles:
    """Return the files of a folder that are for training, validation and test, by their names.

    ``path`` may be the training file itself, with the others beside it. A validation or a test that
    is named is taken instead.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt", "contest.txt"):
    ...     (folder / name).touch()
    >>> [part.name for part in part_files(folder)]
    ['ptb.train.txt', 'ptb.valid.txt', 'ptb.test.txt']
    """
    path = Path(path)
    folder, train = (path, None) if path.is_dir() else (path.parent, path)
    if train is None or not (validation or test):
        found = [_called(folder, words) for words in _WORDS]
    else:
        found = [None, None, None]
    train = train or found[0]
    asked = Path(test) if test else found[2]
    if train is None or asked is None:
        what, word = ("training", "train") if train is None else ("test", "test")
        otherwise = (
            "name it as the source" if train is None else "name it by test_file (--test-file)"
        )
        raise ValueError(
            f"{folder} has no file for the {what}: its name must have the word {word} in it; "
            f"or {otherwise}"
        )
    return PartFiles(train, Path(validation) if validation else found[1], asked)


def _called(folder: Path, words: str) -> Path | None:
    """Return the only entry of a folder whose name has one of the words."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [each for each in entries if re.search(words, each.name.lower())]
    if len(found) > 1:
        raise ValueError(
            f"{folder} has several files for one part, {found[0].name} and {found[1].name}: leave "
            "one of them, or name the files"
        )
    return found[0] if found else None


def read_log_parts(
    files: PartFiles,
    kind: str,
    columns: Columns,
    limits: Limits = NO_LIMITS,
    where: str = "",
    event_weights: str = "",
) -> Source:
    """Read a log in parts: ``source.parts`` says which file each interaction comes from.

    Within a user the parts follow each other, each in time order.
    """
    given = [[] if part is None else files_of(part) for part in files]
    paths = [path for part in given for path in part]
    log = scan_log(paths, kind, columns, where, event_weights)
    (user_codes, users), (item_codes, items) = numbered(log.users()), numbered(log.items())
    times = log.times()
    numbers, per_second = (None, 1.0) if times is None else (times[0].to_numpy(), times[1])
    starts = [log.starts[file] for file in np.cumsum([0, len(given[0]), len(given[1])])]
    rows = np.arange(len(user_codes), dtype=np.int32)
    parts = np.searchsorted(starts, rows, side="right") - 1
    # Within a user first by part: a file says what comes after what, even against the times.
    num_groups = check_whole("users · 3", len(users) * len(given), 0, MAX_ROWS)
    groups = (user_codes.astype(np.int64) * len(given) + parts).astype(np.int32)
    order, sorted_times, offsets, _ = grouped(groups, num_groups, rows, numbers)
    by_user = np.ascontiguousarray(offsets[:: len(given)])
    coded = Coded(item_codes[order], by_user, users, sorted_times, per_second)
    sequences, vocabulary, left = classes_of(coded, items, limits, beside=torch.from_numpy(order))
    assert left is not None
    if (weights := log.weights()) is not None:
        sequences = sequences.weighed_by(torch.from_numpy(weights.to_numpy()[left]))
    return Source(
        kind=kind,
        sequences=sequences,
        vocabulary=vocabulary,
        columns=log.columns,
        parts=torch.from_numpy(parts[left].astype(np.uint8)),
    )


def read_text_parts(
    files: PartFiles, limits: Limits, *, tokens: str | None, end: str | None
) -> Source:
    """Read a text in parts: the words of the training part are the classes."""
    limited = {"min_count": limits.min_count, "unknown": limits.unknown}
    train, vocabulary = read_corpus(files.train, tokens=tokens, end=end, **limited)  # type: ignore[arg-type]
    others = [
        None if path is None else encode_corpus(path, vocabulary, tokens=tokens, end=end)[0]
        for path in files[1:]
    ]
    texts = [(train, 0), *((text, part) for part, text in enumerate(others, 1) if text is not None)]
    values = torch.cat([text.values for text, _ in texts])
    parts = torch.cat([torch.full((len(text.values),), part) for text, part in texts])
    starts = torch.tensor([0, *(len(text.values) for text, _ in texts)]).cumsum(0)
    offsets = [text.offsets[:-1] + start for (text, _), start in zip(texts, starts, strict=False)]
    whole = Sequences(values, torch.cat([*offsets, starts[-1:]]), vocabulary=vocabulary)
    return replace(
        Source(kind=TEXT, sequences=whole, vocabulary=vocabulary), parts=parts.to(torch.uint8)
    )
