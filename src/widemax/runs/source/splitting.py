"""Splitting the source of a run: what is trained on, what validates and what tests."""

from __future__ import annotations

from dataclasses import replace

from widemax.config import Config
from widemax.data import Sequences, Source, Windows
from widemax.data.reading.tables import TEXT
from widemax.data.splitting.holding_out import Sizes, Split, split_files, split_log, split_text
from widemax.declarations.table import load
from widemax.models import Model
from widemax.models.automatic import with_numbers
from widemax.runs.source.configured import FILES


def split_source(config: Config, source: Source) -> Split:
    """Hold out ``validation_size`` examples, and ``test_size`` others, never seen in training."""
    if config.get("search_column", "") and config.split not in ("last", "last-of-some"):
        raise ValueError(
            f"search_column goes with split = 'last' or 'last-of-some', got {config.split!r}, "
            "which would hold out words of searches too"
        )
    sizes = Sizes(config.validation_size, config.test_size)

    def cut(part: Sequences) -> Windows:
        return cut_text(config, part)

    if config.split == FILES:
        split = split_files(source, sizes, cut)
    elif source.kind != TEXT:
        return split_log(source, config.split, sizes)
    else:
        split = split_text(source.sequences, sizes, cut)
    if not config.get("across_lines", False):
        return split
    assert split.final is not None
    return replace(split, sequences=split.sequences.joined(), final=split.final.joined())


def cut_text(config: Config, text: Sequences) -> Windows:
    """Return the words of a text, each with what the model of a run predicts it from."""
    model: type[Model] = load(config.parts["model"])
    # What a log decides about its histories, a text does not.
    config = with_numbers(config, len(text.values))
    return model.windows_of(text.joined() if config.get("across_lines", False) else text, config)
