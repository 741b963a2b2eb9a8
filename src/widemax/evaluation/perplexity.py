"""Perplexity, always from an explicitly normalised distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widemax.data import Windows
from widemax.heads import Head
from widemax.validation import check_tensor

_ROWS_AT_ONCE = 1024
# Rounding may lift the log of a probability near 1 a little above 0; a score lies far above.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class PerplexityReport:
    """How surprised a model was, on average over the tokens.

    Formula: mean_log_prob = mean over tokens of log P(token | context), natural logarithm;
    perplexity = exp(−mean_log_prob). A token of probability 0 makes it infinite.

    Shapes: numbers.

    Cost: it only holds numbers.

    Reference: Jelinek et al. 1977.

    Use when: reading an evaluation. Avoid when: two models have different vocabularies or predict
    different tokens: their perplexities cannot be compared.

    >>> report = PerplexityReport.from_log_probs(torch.tensor([0.5, 0.125]).log())
    >>> report.tokens, round(report.perplexity, 4)
    (2, 4.0)
    """

    tokens: int
    mean_log_prob: float
    perplexity: float

    @classmethod
    def from_log_probs(cls, log_probs: Tensor) -> PerplexityReport:
        """Take log P of each token, [N], as ``target_log_probs`` gives it."""
        mean = _check_log_probs("log_probs", log_probs).mean()
        return cls(
            tokens=len(log_probs), mean_log_prob=float(mean), perplexity=float((-mean).exp())
        )

    def metrics(self) -> dict[str, float]:
        """Return the metrics by their names."""
        return {"mean_log_prob": self.mean_log_prob, "perplexity": self.perplexity}


def evaluate_perplexity(
    head: Head,
    encode: Callable[[Tensor], Tensor],
    examples: Windows,
    *,
    progress: Callable[[int], object] | None = None,
) -> PerplexityReport:
    """Measure the exact perplexity of a model on examples.

    Formula: exp(−mean log P(target | context)), P from ``head.log_prob``: normalised over all
    classes, whatever the training objective was.

    Shapes: ``encode`` takes contexts [B, H] and returns hidden states [B, D].

    Cost: that of ``head.log_prob`` of one class a row, block by block: O(N·V·D) and no [B, V] for
    a flat head, less for a tree or an adaptive head.

    Reference: Bengio et al. 2003.

    Use when: judging a language model. Put encoder and head into ``eval`` mode first: dropout
    would be measured with it. Avoid when: the windows see what comes after the target: that is no
    language model, and its perplexity none of the text.

    >>> from widemax.data import Sequences
    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> windows = Windows(Sequences.from_lists([[0, 1, 2]]), before=1)
    >>> encode = lambda context: torch.zeros(len(context), 2)
    >>> report = evaluate_perplexity(FullHead(TableScorer(4, 2)), encode, windows)
    >>> report.tokens, round(report.perplexity, 4)  # four classes alike
    (3, 4.0)
    """
    log_probs = target_log_probs(head, encode, examples, progress=progress)
    return PerplexityReport.from_log_probs(log_probs)


@torch.no_grad()
def target_log_probs(
    head: Head,
    encode: Callable[[Tensor], Tensor],
    examples: Windows,
    *,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """Return log P of the target of each example, exactly normalised.

    Formula: out[i] = log P(target_i | context_i).

    Shapes: ``encode`` takes contexts [B, H] and returns hidden states [B, D]; out is float64 [N],
    on the CPU.

    Cost: as ``evaluate_perplexity``, and 8 bytes per example.

    Reference: none.

    Use when: models are mixed or compared token by token. Avoid when: only the mean is wanted
    (``evaluate_perplexity``).

    >>> from widemax.data import Sequences
    >>> from widemax.heads import FullHead
    >>> from widemax.scoring import TableScorer
    >>> windows = Windows(Sequences.from_lists([[0, 1]]), before=1)
    >>> encode = lambda context: torch.zeros(len(context), 2)
    >>> log_probs = target_log_probs(FullHead(TableScorer(4, 2)), encode, windows)
    >>> [round(prob, 4) for prob in log_probs.exp().tolist()]
    [0.25, 0.25]
    """
    if not len(examples):
        raise ValueError("there are no examples to evaluate on")
    parts = []
    for start in range(0, len(examples), _ROWS_AT_ONCE):
        rows = torch.arange(start, min(start + _ROWS_AT_ONCE, len(examples)))
        batch = examples.batch(rows)
        hidden = encode(batch.context)
        targets = batch.targets.to(hidden.device)[:, None]
        parts.append(head.log_prob(hidden, targets)[:, 0].double().cpu())
        if progress is not None:
            progress(len(rows))
    return torch.cat(parts)


def mixed_perplexity(
    log_probs: Tensor, other_log_probs: Tensor, weight: float = 0.5
) -> PerplexityReport:
    """Measure the perplexity of two models mixed, token by token.

    Formula: log P = log(w·p + (1 − w)·q), summed in log space; w = ``weight`` goes to the first.

    Shapes: both [N], of the same tokens in the same order.

    Cost: O(N).

    Reference: Bengio et al. 2003, who mix the neural model half and half with a trigram: the two
    err on different tokens.

    Use when: a neural model stands beside an n-gram. Avoid when: ``weight`` would be chosen on the
    tokens that are measured: choose it on others.

    >>> sure, unsure = torch.tensor([0.9, 0.1]).log(), torch.tensor([0.1, 0.9]).log()
    >>> round(mixed_perplexity(sure, unsure).perplexity, 4)  # alone, each has 3.3333
    2.0
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be between 0 and 1, got {weight!r}")
    first = _check_log_probs("log_probs", log_probs)
    second = _check_log_probs("other_log_probs", other_log_probs)
    if len(first) != len(second):
        raise ValueError(
            f"other_log_probs must be of the same {len(first):,} tokens, got {len(second):,}"
        )
    shares = [math.log(share) if share else -math.inf for share in (weight, 1 - weight)]
    return PerplexityReport.from_log_probs(torch.logaddexp(first + shares[0], second + shares[1]))


def _check_log_probs(name: str, log_probs: Tensor) -> Tensor:
    """Return ``log_probs`` in float64 if they can be the logarithms of probabilities, [N]."""
    if check_tensor(name, log_probs).dim() != 1 or not len(log_probs):
        raise ValueError(f"{name} must have shape [N], N at least 1, got {list(log_probs.shape)}")
    wide = log_probs.detach().double()
    largest = float(wide.max())
    if not largest <= _ROUNDING:  # NaN comes out as the largest
        raise ValueError(
            f"{name} must be logarithms of probabilities, at most 0, got {largest:g}: scores must "
            "be normalised first"
        )
    return wide
