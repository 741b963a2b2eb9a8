"""What was read of a file or a database: sequences of classes, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from widemax.data.sequences import Sequences
from widemax.vocabulary import Vocabulary

# A source is made by what reads, and reads nothing itself.
if TYPE_CHECKING:
    from widemax.data.features.table import FeatureTable
    from widemax.data.reading.logs import Columns


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was read: sequences of classes, and the keys of the classes.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemax.data import read_source
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_text("7 31\\n7 12\\n8 31\\n")
    >>> source = read_source(path)
    >>> source.kind, source.sequences, source.vocabulary.decode([0])
    ('pairs', Sequences(2 sequences, 3 values), [31])
    """

    kind: str
    """The format it was read from."""
    sequences: Sequences
    """A user's items in time order, with the users as ``names``, or the words of a line."""
    vocabulary: Vocabulary
    """The keys of the classes; counts[y] is the number of y in ``sequences.values``."""
    columns: Columns | None = None
    """The columns of a log that were read; None for text."""
    goals: Tensor | None = None
    """Bool [T], beside ``sequences.values``, if a goal column was named."""
    parts: Tensor | None = None
    """Uint8 [T], where files say what is for training (0), validation (1) and the test (2)."""
    item_features: FeatureTable | None = None
    """A row for each class, if there are any."""
    user_features: FeatureTable | None = None
    """A row for each sequence, if there are any."""
