"""N-gram language models: maximum likelihood, Kneser–Ney and modified Kneser–Ney."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widemax.data import Sequences
from widemax.ngrams.arpa_reading import read_arpa
from widemax.ngrams.arpa_writing import write_arpa
from widemax.ngrams.counting import MAX_ORDER, MOST_KEYS, Ids, count_levels
from widemax.ngrams.drawing import generate_sentences, running_shares
from widemax.ngrams.fitting import (
    DiscountRule,
    interpolated,
    kneser_ney_discounts,
    modified_kneser_ney_discounts,
    no_discounts,
)
from widemax.ngrams.stored import checked_trie, named_tensors
from widemax.ngrams.trie import Trie
from widemax.validation import (
    ABSENT,
    MAX_SAMPLES,
    MAX_TABLE_CLASSES,
    check_ids,
    check_num_classes,
    check_tensor,
    check_whole,
)
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.spelling import Key


class NGramModel:
    """p(y | the last n − 1 classes), counted from sentences and smoothed.

    That nothing before these matters is the Markov assumption.

    Formula: p(y | c) = max(count(c, y) − D, 0) / Σ_y count(c, y) + γ(c) · p(y | c'), where c' is c
    without its first id, γ(c) what the discounts D took, and p = 1/V below the unigram. Below the
    longest n-grams ``kneser_ney`` and ``modified_kneser_ney`` count the different ids before an
    n-gram, unless it starts a sentence. D comes from n_k, the number of n-grams of this length
    that were counted k times: n_1 / (n_1 + 2·n_2), or one D for each count 1, 2, 3+.
    ``maximum_likelihood`` has D = 0: after a context that was seen, only what followed it there.

    Shapes: ``Sequences`` hold one sentence each, its end word (if it has one) included as a class;
    contexts are int64 [B, H], oldest id first, −1 where the sentence has not begun, which is known:
    the first word is predicted from a begin marker. Ids beyond the last order − 1 do not matter; a
    context with fewer is that of a text which begins somewhere else.

    Cost: fitting sorts the corpus once for each length, some two seconds for a million words and
    order 5; 24 bytes for each different n-gram. Scoring is O(order · log G) a word.

    Reference: Kneser & Ney 1995; Chen & Goodman 1999.

    Use when: a language model is wanted in seconds, to compare with, to mix with a neural one or
    to draw from (``KneserNeySampler``). Avoid when: the order of the classes has no meaning.

    A discount that cannot be computed because too few n-grams were seen is 0.5, or 0.5, 1, 1.5 for
    counts of 1, 2, 3+. No n-gram is left out; a word that has no class must be mapped by the
    caller, to the class of unknown words if there is one.

    >>> sentences = Sequences.from_lists([[1, 2, 0], [1, 1, 2, 0], [2, 1, 0]])
    >>> model = NGramModel.modified_kneser_ney(sentences, 3, order=2)
    >>> model
    NGramModel(3 classes, order 2, 11 n-grams)
    >>> model.log_probs(torch.tensor([[1], [-1]])).exp().round(decimals=3).tolist()
    [[0.28, 0.315, 0.405], [0.155, 0.524, 0.321]]
    >>> round(model.perplexity(sentences), 4)
    2.4915
    """

    def __init__(self, trie: Trie, order: int) -> None:
        self.trie = trie
        self.order = check_whole("order", order, max(1, len(trie.bounds) - 1), MAX_ORDER)

    @classmethod
    def maximum_likelihood(
        cls, sequences: Sequences, num_classes: int, *, order: int = 3
    ) -> NGramModel:
        """Count, and smooth nothing: what was never seen after a seen context has p = 0."""
        return cls._fitted(sequences, num_classes, order, no_discounts, continuation=False)

    @classmethod
    def kneser_ney(cls, sequences: Sequences, num_classes: int, *, order: int = 5) -> NGramModel:
        """Fit with one discount for each length."""
        return cls._fitted(sequences, num_classes, order, kneser_ney_discounts, continuation=True)

    @classmethod
    def modified_kneser_ney(
        cls, sequences: Sequences, num_classes: int, *, order: int = 5
    ) -> NGramModel:
        """Fit with three discounts for each length, which is better on nearly all text."""
        return cls._fitted(
            sequences, num_classes, order, modified_kneser_ney_discounts, continuation=True
        )

    @classmethod
    def _fitted(
        cls,
        sequences: Sequences,
        num_classes: int,
        order: int,
        rule: DiscountRule,
        *,
        continuation: bool,
    ) -> NGramModel:
        num_classes = check_num_classes(num_classes, limit=MAX_TABLE_CLASSES)
        order = check_whole("order", order, 1, MAX_ORDER)
        check_ids("sequences", sequences.values, num_classes)
        if not len(sequences.values):
            raise ValueError("sequences must hold at least one value, got none")
        most = MOST_KEYS // (num_classes + 1) - num_classes
        if order * len(sequences.values) > most:
            raise ValueError(
                f"sequences must hold at most {most // order:,} values for order {order} and "
                f"{num_classes:,} classes, got {len(sequences.values):,}"
            )
        levels = count_levels(_stream(sequences, num_classes), num_classes, order)
        return cls(interpolated(levels, num_classes, rule, continuation=continuation), order)

    @property
    def num_classes(self) -> int:
        """The number of classes, the begin marker not counted."""
        return self.trie.num_classes

    @property
    def num_ngrams(self) -> list[int]:
        """How many n-grams of each length there are; unigrams are all classes and begin."""
        return np.diff(self.trie.bounds).tolist()

    def __repr__(self) -> str:
        return (
            f"NGramModel({self.num_classes:,} classes, order {self.order}, "
            f"{sum(self.num_ngrams):,} n-grams)"
        )

    def log_prob(self, contexts: Tensor, ids: Tensor) -> Tensor:
        """Return log p(y | context), float64 like ``ids`` [B] or [B, S]; −inf where p = 0."""
        ids = check_ids("ids", ids, self.num_classes)
        places = self._places(contexts)
        if ids.dim() not in (1, 2) or len(ids) != len(places):
            raise ValueError(
                f"ids must have shape [B] or [B, S] with B = {len(places):,} like contexts, got "
                f"{list(ids.shape)}"
            )
        table = ids[:, None] if ids.dim() == 1 else ids
        return self.trie.score(places, table).view(ids.shape)

    def log_probs(self, contexts: Tensor) -> Tensor:
        """Return log p of every class, float64 [B, V]: to mix with the scores of another model."""
        if len(check_tensor("contexts", contexts)) * self.num_classes > MAX_SAMPLES:
            raise ValueError(
                f"contexts must have at most {MAX_SAMPLES // self.num_classes:,} rows for "
                f"{self.num_classes:,} classes, got {len(contexts):,}"
            )
        return self.trie.distribution(self._places(contexts))

    def token_log_prob(self, sequences: Sequences) -> Tensor:
        """Return log p of each value given those before it, float64 like ``sequences.values``."""
        check_ids("sequences", sequences.values, self.num_classes)
        stream = torch.from_numpy(_stream(sequences, self.num_classes))
        return self.trie.score_stream(stream, self.order)[stream != self.num_classes]

    def sequence_log_prob(self, sequences: Sequences) -> Tensor:
        """Return log p of each sequence, float64 [N]; 0 for an empty one."""
        rows = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
        total = torch.zeros(len(sequences), dtype=torch.float64)
        return total.index_add_(0, rows, self.token_log_prob(sequences))

    def perplexity(self, sequences: Sequences) -> float:
        """Return exp(−mean log p) over all values; infinite where one has p = 0."""
        if not len(sequences.values):
            raise ValueError("sequences must hold at least one value, got none")
        mean = self.token_log_prob(sequences).mean().item()
        return math.exp(-mean) if mean > -700 else math.inf

    def generate(
        self,
        num_sequences: int,
        max_length: int,
        *,
        end: int | None = None,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Sequences:
        """Draw sentences, each up to and with the class ``end``, or of ``max_length`` classes.

        They continue ``context`` [H]; without it they begin. A class costs O(order · log G), or
        O(V) if the model was imported and is not interpolated.
        """
        num_sequences = check_whole("num_sequences", num_sequences, 1, MAX_SAMPLES)
        max_length = check_whole("max_length", max_length, 1, MAX_SAMPLES // num_sequences)
        if end is not None:
            end = check_whole("end", end, 0, self.num_classes - 1)
        history = self._history(context).repeat(num_sequences, 1)
        return generate_sentences(
            self.trie, self._running, history, max_length, end=end, generator=generator
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return the model as plain named tensors, int64 and float64, to be stored as they are."""
        return named_tensors(self.trie, self.order)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> NGramModel:
        """Return the model whose ``tensors`` these are; ValueError if they are no model's."""
        return cls(*checked_trie(tensors))

    def save_arpa(
        self,
        path: str | Path,
        vocabulary: Vocabulary,
        *,
        begin: str = "<s>",
        end: Key | None = None,
        unknown: Key | None = None,
    ) -> None:
        """Write an ARPA file, from which any reader takes the same probabilities.

        Readers look for words named </s> and <unk>: the keys ``end`` and ``unknown`` of the
        vocabulary are written as these, all others as they are, the begin marker as ``begin``.
        """
        write_arpa(path, self.trie, vocabulary, begin=begin, end=end, unknown=unknown)

    @classmethod
    def load_arpa(
        cls, path: str | Path, *, begin: str = "<s>", unknown: str = "<unk>"
    ) -> tuple[NGramModel, Vocabulary]:
        """Read an ARPA file: a model that scores by back-off, and its words as classes.

        Classes are in the order of the file, counted 0 times, for the file has no counts. A file
        that is damaged, or lists an n-gram without its context, is a ValueError with the line.
        """
        trie, order, vocabulary = read_arpa(path, begin=begin, unknown=unknown)
        return cls(trie, order), vocabulary

    def _places(self, contexts: Tensor) -> Tensor:
        if check_tensor("contexts", contexts).dim() != 2:
            raise ValueError(f"contexts must have shape [B, H], got {list(contexts.shape)}")
        contexts = contexts[:, max(0, contexts.shape[1] - self.order + 1) :]
        contexts = check_ids("contexts", contexts, self.num_classes, absent=True)
        return self.trie.context_places(contexts, self.order)

    def _history(self, context: Tensor | None) -> Tensor:
        """Return the last order − 1 ids of a context, [1, order − 1], begin in front."""
        begun = torch.full((self.order - 1,), ABSENT)
        if context is not None:
            if check_tensor("context", context).dim() != 1:
                raise ValueError(f"context must have shape [H], got {list(context.shape)}")
            context = check_ids("context", context, self.num_classes, absent=True)
            begun = torch.cat([begun, context])
        return begun[len(begun) - self.order + 1 :][None]

    @cached_property
    def _running(self) -> Tensor | None:
        """What draws need, or None if the model is not interpolated."""
        try:
            return running_shares(self.trie)
        except ValueError:
            return None


def _stream(sequences: Sequences, num_classes: int) -> Ids:
    """Return all sentences end to end, each after the begin marker, id ``num_classes``."""
    values = sequences.values.cpu().numpy()
    starts = sequences.offsets[:-1].cpu().numpy()
    return np.insert(values, starts, num_classes)
