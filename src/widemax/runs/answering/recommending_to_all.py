"""What best follows the history of every user of a log, as tables."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import torch

from widemax.candidates import TopK
from widemax.data import WindowBatch
from widemax.data.splitting.holdout import last_values
from widemax.runs.answering.asking import QuestionReader
from widemax.runs.folder.kept_data import histories_of
from widemax.validation import ABSENT, check_whole


@torch.no_grad()
def recommend_to_all(
    reader: QuestionReader, *, k: int, include_seen: bool
) -> Iterator[pl.DataFrame]:
    """Yield tables of ``user``, ``rank``, ``item``, ``score`` and, where known, ``title``."""
    path = reader.histories.path
    if path is None:
        raise ValueError(f"{reader.histories.folder} has no users to recommend to")
    k = min(check_whole("k", k, 1, 2**31), len(reader.vocabulary))
    for users, had in histories_of(path):
        rows = torch.arange(len(users))
        asked = WindowBatch(
            context=last_values(had, rows, reader.reach),
            targets=torch.full_like(rows, ABSENT),
            users=torch.tensor([reader.row_of(user) for user in users]),
            ages=torch.zeros(len(users)),
        )
        longest = max(1, int(had.lengths.max()))
        exclude = None if include_seen else last_values(had, rows, longest)
        yield _table(reader, users, reader.model.topk(asked, k, exclude=exclude))


def _table(reader: QuestionReader, users: pl.Series, found: TopK) -> pl.DataFrame:
    there = found.ids >= 0
    rows, places = there.nonzero().unbind(1)
    ids = found.ids[there].numpy()
    known = reader.catalogue.titles
    titles = {} if known is None else {"title": [known[row] or None for row in ids]}
    return pl.DataFrame(
        {
            "user": users.gather(rows.numpy()),
            "rank": (places + 1).numpy(),
            "item": reader.vocabulary.keys.gather(ids),
            "score": found.scores[there].numpy(),
            **titles,
        }
    )
