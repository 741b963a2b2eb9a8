"""Draws from an interpolated model: pick how much of the context decides, then one of its n-grams.

p(y | c) = own(c, y) + γ(c) · p(y | c without its first id), and with own ≥ 0 this is a recipe: with
probability γ(c) forget the first id and ask again, else take an n-gram by its own part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.ngrams.trie import Trie
from widemax.validation import ABSENT

_TOLERANCE = 1e-5  # other programs write seven digits
_PROBS_AT_ONCE = 2**24


def running_shares(trie: Trie) -> Tensor:
    """Return the running sum of own(c, y) over all places, from 0: float64 [places + 1].

    ValueError if the model cannot be drawn from like this: an own part is negative (back-off
    without interpolation), or the parts of a context do not sum to 1.
    """
    own = _own_parts(trie)
    if bool((own < -_TOLERANCE * trie.log_probs.exp()).any()):
        raise ValueError(
            "the model must be interpolated: an n-gram is less likely than back-off would make it"
        )
    own.clamp_(min=0.0)
    running = torch.cat([own.new_zeros(1), own.cumsum(0)])
    _check_sums(trie, own)
    return running


def draw(trie: Trie, running: Tensor, places: Tensor, uniform: Tensor) -> Tensor:
    """Return classes [B, S] drawn after contexts [B, order] by uniform numbers [2, B, S]."""
    passed_on = trie.backoffs(places[:, 1:]).exp().flip(1)
    # Longest first: the chance that a length of at least this one decides.
    decided = 1 - passed_on.cumprod(1)
    skipped = torch.searchsorted(decided.contiguous(), uniform[0].contiguous(), right=True)
    length = places.shape[1] - 1 - skipped
    start, end = (bound.gather(1, length) for bound in trie.children(places))
    low, high = running[start], running[end]
    entry = torch.searchsorted(running, torch.lerp(low, high, uniform[1]), right=True) - 1
    # The running sum is rounded: a draw at its edge must stay within the context.
    return trie.keys[entry.clamp(start, end - 1)] % trie.base


def _own_parts(trie: Trie) -> Tensor:
    """Return p(y | c) − γ(c) · p(y | c without its first id) at each place; 0 at the root."""
    parents = trie.keys.div(trie.base, rounding_mode="floor")
    ids = trie.keys % trie.base
    own = trie.log_probs.exp()
    own[0] = 0.0
    suffixes = torch.zeros(len(trie.keys), dtype=torch.int64, device=trie.keys.device)
    for length, (start, end) in enumerate(
        zip(trie.bounds[1:], trie.bounds[2:], strict=False), start=2
    ):
        level = slice(start, end)
        suffixes[level] = trie.child(suffixes[parents[level]], ids[level])
        lower = trie.log_probs[suffixes[level].clamp(min=0)]
        missing = (suffixes[level] == ABSENT).nonzero().flatten()
        lower[missing] = _scored_without_first(trie, missing + start, length)
        own[level] -= (trie.log_backoffs[parents[level]] + lower).exp()
    return own


def _scored_without_first(trie: Trie, places: Tensor, length: int) -> Tensor:
    """Return log p(last id | all but the first) of n-grams of one length, [M]."""
    ids = trie.ids_of(places, length)
    contexts = trie.context_places(ids[:, 1:-1], length - 1)
    return trie.score(contexts, ids[:, -1:]).flatten()


def _check_sums(trie: Trie, own: Tensor) -> None:
    """Refuse a model in which some context's own parts and γ do not sum to 1."""
    parents = trie.keys[1:].div(trie.base, rounding_mode="floor")
    followed = torch.zeros_like(own).index_add_(0, parents, own[1:])
    passed_on = trie.log_backoffs.exp()
    passed_on[0] = 0.0
    total = followed + passed_on
    worst = total[(total - 1).abs().argmax()].item()
    if abs(worst - 1) > _TOLERANCE:
        raise ValueError(
            "the model must be interpolated: the probabilities after some context sum to "
            f"{worst:.6g}, not to 1"
        )


def generate_sentences(
    trie: Trie,
    running: Tensor | None,
    history: Tensor,
    max_length: int,
    *,
    end: int | None,
    generator: torch.Generator | None,
) -> Sequences:
    """Continue histories [B, order − 1], each up to and with ``end``, or for ``max_length``.

    ``running`` is that of ``running_shares``, or None if the model is not interpolated.
    """
    drawn = torch.full((len(history), max_length), ABSENT)
    unfinished = torch.arange(len(history))
    for step in range(max_length):
        contexts = history[unfinished]
        ids = _draw_next(trie, running, contexts, generator)
        drawn[unfinished, step] = ids
        history[unfinished] = torch.cat([contexts, ids[:, None]], dim=1)[:, 1:]
        unfinished = unfinished if end is None else unfinished[ids != end]
        if not len(unfinished):
            break
    there = drawn != ABSENT
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    return Sequences(drawn[there], offsets)


def _draw_next(
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
