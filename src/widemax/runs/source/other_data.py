"""Questions from data that a run was not trained on, in the classes of the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from widemax.config import Config
from widemax.data import Holdout, Sequences, Source, Windows, read_source
from widemax.data.reading import recognise
from widemax.data.reading.logs import NoColumnError
from widemax.data.reading.numbering import recoded
from widemax.data.reading.tables import TEXT
from widemax.data.splitting.log_split import distinct_targets
from widemax.data.summary import DataSummary, source_of
from widemax.declarations.table import find
from widemax.runs.folder.kept_data import histories_among, places_of
from widemax.runs.source.splitting import cut_text
from widemax.validation import ABSENT
from widemax.vocabulary import Vocabulary

HISTORIES = ("auto", "run", "file")
"""Where it comes from what users had before: auto takes the run's where most are users of it."""

_MOSTLY = 0.5


@dataclass(frozen=True, kw_only=True)
class OtherData:
    """What a file asks of a run, and what of it the run knows nothing about."""

    path: Path
    """The file."""
    values: int
    """How many interactions or words it has, those left out by ``where`` apart."""
    unknown: int
    """How many of these the run has no class for; with an unknown word they are that."""
    histories: str = ""
    """Of a log: "run" if what users had is what the run keeps, "file" if it is in the file."""
    holdout: Holdout | None = None
    """Of a log: users, what they had, and what they chose next."""
    skipped: int = 0
    """How many users are not asked about: nothing is known of them, or nothing is asked."""
    where: str = ""
    """The condition for the rows of a log that the run has."""
    windows: Windows | None = None
    """Of a text: words, each with those around it."""

    def __str__(self) -> str:
        """Return what was asked, to be printed beside the figures."""
        asked = {
            "run": "all items of the file, asked from what users had in the run's log",
            "file": "the last item of each user of the file, asked from those before it",
            "": "all words of the text",
        }[self.histories]
        text = f"{self.path}: {asked}"
        if self.where:
            text += f", of rows where {self.where}"
        if self.unknown:
            text += f"; {self.unknown:,} of {self.values:,} are unknown to the run"
        if self.skipped:
            users = "1 user" if self.skipped == 1 else f"{self.skipped:,} users"
            text += f"; {users} skipped, of whom too little is known"
        return text


def read_other(
    path: str | Path,
    config: Config,
    data: DataSummary,
    kept: Path | None,
    *,
    kind: str = "",
    histories: str = "auto",
) -> OtherData:
    """Read a file as a run reads its own, in the classes of the run.

    ``kept`` is the file of the run's histories. ``kind`` is the format, where the content does not
    show it.
    """
    if histories not in HISTORIES:
        raise ValueError(f"histories must be one of {', '.join(HISTORIES)}, got {histories!r}")
    kind = find("format", kind, argument="kind").name if kind not in ("", TEXT) else kind
    kind = kind or recognise(path)
    if source_of(kind) != data.source:
        raise ValueError(
            f"{path} looks like a {source_of(kind)}, and the run was trained on a {data.source}: "
            "say by kind what it is (--kind)"
        )
    if kind == TEXT:
        return _text(Path(path), config, data.vocabulary)
    return _log(Path(path), kind, config, data, kept, histories)


def _text(path: Path, config: Config, vocabulary: Vocabulary) -> OtherData:
    if config.phrases:
        raise ValueError("the run has joined words to phrases, which another text has others of")
    source = read_source(path, kind=TEXT, tokens=config.tokens or None, end=config.end or None)
    sequences, known = _in_classes(source, vocabulary)
    windows = cut_text(config, sequences)
    if not len(windows):
        raise ValueError(f"{path} has no word that the run knows")
    return OtherData(path=path, values=len(known), unknown=int((~known).sum()), windows=windows)


def _log(
    path: Path, kind: str, config: Config, data: DataSummary, kept: Path | None, histories: str
) -> OtherData:
    columns = ("user_column", "item_column", "time_column", "where")
    try:
        source = read_source(path, kind=kind, **{name: config.get(name, "") for name in columns})  # type: ignore[arg-type]
    except NoColumnError as error:
        # Who trains can name columns; who judges cannot.
        raise ValueError(
            f"{error.what}; it is read as the log of the run was: call its columns what they are "
            "called there, or say by kind what it is (--kind)"
        ) from error
    sequences, known = _in_classes(source, data.vocabulary)
    names, had = source.sequences.names, None
    assert names is not None
    if histories != "file":
        had = None if kept is None else histories_among(kept, names)
        of_run = 0.0 if had is None else float((had.lengths > 0).double().mean())
        if histories == "run" and not of_run:
            raise ValueError(f"none of the users of {path} is a user of the run")
        had = had if histories == "run" or of_run > _MOSTLY else None
    if had is None:
        _, asked = Holdout.of_last(sequences)
    else:
        rows = ((had.lengths > 0) & (sequences.lengths > 0)).nonzero()[:, 0]
        asked = Holdout(had.chosen(rows), distinct_targets(sequences.chosen(rows)), rows)
    if not len(asked):
        there = f"of its {len(known):,} rows {int(known.sum()):,} have an item of the run"
        raise ValueError(f"{path} asks nothing: no user has a history and then an item; {there}")
    rows = _feature_rows(names, data)[asked.users]
    holdout = Holdout(asked.histories, asked.targets, rows).numbered_by(data.vocabulary)
    return OtherData(
        path=path,
        values=len(known),
        unknown=int((~known).sum()),
        histories="file" if had is None else "run",
        holdout=holdout,
        skipped=len(sequences) - len(asked),
        where=config.where,
    )


def _in_classes(source: Source, vocabulary: Vocabulary) -> tuple[Sequences, Tensor]:
    """Return the sequences in the classes of a run, and which of the values it knows, bool [T]."""
    ids = places_of(source.vocabulary.keys, vocabulary.keys)
    known = ids != ABSENT
    if vocabulary.unknown is not None:
        ids = ids.where(known, vocabulary.id_of(vocabulary.unknown))
    return recoded(source.sequences, ids)[0], known[source.sequences.values]


def _feature_rows(names: pl.Series, data: DataSummary) -> Tensor:
    """Return the row of each user among those with features, int64 [N]; -1 where there is none."""
    if data.user_features is None:
        return torch.full((len(names),), ABSENT)
    return places_of(names, data.user_features.keys)
