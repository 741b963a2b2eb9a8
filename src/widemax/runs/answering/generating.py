"""Continuing a sequence: each further class is drawn from what a model predicts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from widemax.models import Model
from widemax.validation import ABSENT


@torch.no_grad()
def generate_ids(
    model: Model,
    ids: list[int],
    *,
    length: int,
    reach: int,
    before: Sequence[int] = (),
    end: int | None = None,
    left_out: int | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Draw classes at the end of ``ids`` until there are ``length``, or the last one is ``end``.

    Each is drawn from P(y | the last ``reach`` ids), those of ``before`` first of
    all, without the class ``left_out`` if any other is possible.

    >>> from widemax.data import Sequences
    >>> from widemax.models import NGram
    >>> from widemax.ngrams import NGramModel
    >>> model, ids = NGram(3, NGramModel.maximum_likelihood, order=2), [1]
    >>> model.fit(Sequences.from_lists([[1, 2, 0], [1, 2, 0]]))
    >>> generate_ids(model, ids, length=9, reach=1, end=0)
    >>> ids
    [1, 2, 0]
    """
    while len(ids) < length and (not ids or ids[-1] != end):
        context = torch.tensor([([ABSENT] * reach + [*before] + ids)[-reach:]])
        weights = _probabilities(model, context, left_out)
        ids.append(int(torch.multinomial(weights, 1, generator=generator)))


def _probabilities(model: Model, context: Tensor, left_out: int | None) -> Tensor:
    """Return P(y | context) of each class, 0 for the one left out if there is any other, [V]."""
    whole = model.head.log_prob(model.encode(context))[0].double().exp()
    if left_out is None:
        return whole
    others = whole.clone()
    others[left_out] = 0
    return others if float(others.sum()) > 0 else whole
