"""Hard negatives: the classes that the current model takes for the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from widemax.candidates import Candidates, TopK
from widemax.declarations import Need, Option, Setup, declare
from widemax.sampling.base import NUM_SAMPLES, Sampler, with_log_count_zero
from widemax.validation import check_ids, check_num_samples, check_targets, check_whole

Search = Callable[[Tensor, int], Tensor | TopK]
"""``search(hidden [B, D], k)`` returns the k best classes of each row, ids [B, k], best first."""


class ModelRankedSampler(Sampler):
    """A sampler of what the current model ranks highest: **no probability sample**.

    log Q = 0 for every candidate and target, which means *not corrected*.
    """

    is_probability_sample = False
    per_example = True

    def log_prob(self, ids: Tensor) -> Tensor:
        """Raise ValueError: hard negatives are not drawn from any distribution."""
        raise ValueError(
            f"{type(self).__name__} has no log_prob: its candidates are the best of the model, not "
            "draws from a distribution. It cannot be mixed or corrected for; add the loss of a "
            "head of its own to that of a sampled head instead, or use InBatchSampler for in-batch "
            "candidates with log Q"
        )

    @staticmethod
    def _check_hidden(hidden: Tensor | None, rows: int) -> Tensor:
        if hidden is None or hidden.dim() != 2 or len(hidden) != rows:
            raise ValueError(
                f"hidden must have shape [{rows}, D]: hard negatives depend on it; got "
                f"{None if hidden is None else list(hidden.shape)}"
            )
        return hidden.detach()


@declare.sampler(
    "hard-negatives",
    options=[
        NUM_SAMPLES,
        Option("first_rank", 0, "How many of the best classes are skipped.", most=2**28),
        Option(
            "num_ranks",
            0,
            "How many ranks samples are drawn from; 0 takes as many as there are samples.",
            most=2**28,
        ),
    ],
    needs=[
        Need(
            "objective",
            trait="uncorrected",
            why="has no log Q, so the objective must not correct by it",
        )
    ],
)
class HardNegativeSampler(ModelRankedSampler):
    """Takes the classes that the model ranks highest: hard, but **no probability sample**.

    Formula: candidates of x = the classes of rank ``first_rank`` … ``first_rank`` + ``num_ranks``
    − 1 under F(x, ·), rank 0 being the best; if these are more than num_samples, a random subset.
    log Q = 0 for every candidate and target, which means *not corrected*.

    Shapes: hidden [B, D] → candidates [B, S].

    Cost: that of ``search``: O(B·V·D) for an exact ``head.topk``, less for an index.

    Reference: Faghri et al. 2018 (hardest), Schroff et al. 2015 (semi-hard), Huang et al. 2020
    (ranks 101–500 beat the hardest).

    Use when: a trained model must distinguish the best few, beside or after a sampled loss. Avoid
    when: probabilities are wanted: no objective learns log P from these candidates.

    There is no proposal to correct for: ``is_probability_sample`` is False, ``log_prob`` raises,
    ``MixtureSampler`` and ``ImportanceHead`` refuse it. ``sampled_softmax`` and ``nce`` run, with
    log Q = 0, and fit a softmax or logistic loss over the few best classes only. The target is
    often among the candidates; as with every sampler the objective removes it. Choose
    ``first_rank`` > 0 (semi-hard) where the very best may well be unlabelled positives.

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(4, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0], [0.0]]))
    >>> sampler = HardNegativeSampler(4, wm.FullHead(scorer).topk)
    >>> sampler.sample(2, torch.tensor([0]), hidden=torch.ones(1, 1)).ids.tolist()
    [[1, 2]]
    """

    def __init__(
        self, num_classes: int, search: Search, *, first_rank: int = 0, num_ranks: int | None = None
    ) -> None:
        super().__init__(num_classes)
        if not callable(search):
            raise ValueError(f"search must be a function (hidden, k) → ids, got {search!r}")
        self.search = search
        self.first_rank = check_whole("first_rank", first_rank, 0, num_classes - 1)
        if num_ranks is not None:
            num_ranks = check_whole("num_ranks", num_ranks, 1, num_classes - self.first_rank)
        self.num_ranks = num_ranks

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run, which searches all classes with the scorer of its head."""
        return cls(
            setup.num_classes,
            setup.search(),
            first_rank=setup.options.first_rank,
            num_ranks=setup.options.num_ranks or None,
        )

    @property
    def max_samples(self) -> int:
        """How many ranks there are to choose from."""
        return self.num_ranks or self.num_classes - self.first_rank

    def available(self, targets: Tensor) -> int | None:
        """Return ``num_ranks``; None: as many as asked for."""
        return self.num_ranks

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Return ``num_samples`` of the ranks asked for; None: all of ``num_ranks``."""
        targets = check_targets(targets, self.num_classes)
        num_samples = check_num_samples(
            self.num_ranks if num_samples is None else num_samples, rows=len(targets)
        )
        most = self.max_samples
        if num_samples > most:
            raise ValueError(
                f"num_samples must be at most {most:,}, the ranks from first_rank = "
                f"{self.first_rank:,} on, got {num_samples:,}"
            )
        hidden = self._check_hidden(hidden, len(targets))
        ids = self._ranked(hidden, self.num_ranks or num_samples)
        if num_samples < ids.shape[1]:
            order = torch.rand(ids.shape, device=ids.device, generator=generator).argsort(1)
            ids = ids.gather(1, order[:, :num_samples])
        return with_log_count_zero(ids, targets)

    @torch.no_grad()
    def _ranked(self, hidden: Tensor, num_ranks: int) -> Tensor:
        """Return the classes of the ranks asked for, [B, num_ranks]."""
        wanted = self.first_rank + num_ranks
        found = self.search(hidden, wanted)
        ids = found.ids if isinstance(found, TopK) else torch.as_tensor(found)
        if ids.shape != (len(hidden), wanted):
            raise ValueError(
                f"search must return ids of shape {[len(hidden), wanted]}, got {list(ids.shape)}"
            )
        # An index marks what it did not find by −1: not a class, so here an error.
        return check_ids("search's ids", ids[:, self.first_rank :], self.num_classes)
