"""Sentences drawn from a model, one class after the other, many sentences at once."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.ngrams.drawing import draw
from widemax.ngrams.trie import Trie
from widemax.validation import ABSENT

_PROBS_AT_ONCE = 2**24


def generate_sentences(
    trie: Trie,
    running: Tensor | None,
    history: Tensor,
    max_length: int,
    *,
    end: int | None,
    generator: torch.Generator | None,
) -> Sequences:
    """Go on from histories [B, order − 1], each up to and with ``end``, or for ``max_length``.

    ``running`` is that of ``running_shares``, or None if the model is not interpolated.
    """
    drawn = torch.full((len(history), max_length), ABSENT)
    unfinished = torch.arange(len(history))
    for step in range(max_length):
        contexts = history[unfinished]
        ids = _draw(trie, running, contexts, generator)
        drawn[unfinished, step] = ids
        history[unfinished] = torch.cat([contexts, ids[:, None]], dim=1)[:, 1:]
        unfinished = unfinished if end is None else unfinished[ids != end]
        if not len(unfinished):
            break
    there = drawn != ABSENT
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    return Sequences(drawn[there], offsets)


def _draw(
    trie: Trie, running: Tensor | None, contexts: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Return one class for each context [B, order − 1], [B]."""
    places = trie.context_places(contexts, contexts.shape[1] + 1)
    if running is not None:
        uniform = torch.rand((2, len(places), 1), dtype=torch.float64, generator=generator)
        return draw(trie, running, places, uniform).flatten()
    rows = max(1, _PROBS_AT_ONCE // trie.num_classes)
    return torch.cat([_draw_from_all(trie, some, generator) for some in torch.split(places, rows)])


def _draw_from_all(trie: Trie, places: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return one class for each context, by the probabilities of all classes."""
    # A softmax, for what another program wrote need not sum to 1.
    probs = trie.distribution(places).softmax(-1)
    if bool(probs.isnan().any()):
        raise ValueError("no class has a probability above 0 after one of the contexts")
    return torch.multinomial(probs, 1, generator=generator).flatten()
