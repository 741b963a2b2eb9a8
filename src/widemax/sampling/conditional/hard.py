"""Hard negatives: the classes that the current model takes for the best."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from widemax.candidates import Candidates, TopK
from widemax.sampling.base import Sampler
from widemax.validation import check_ids, check_num_samples, check_targets, check_whole

Search = Callable[[Tensor, int], Tensor | TopK]
"""``search(hidden [B, D], k)`` returns the k best classes of each row, ids [B, k], best first."""


class HardNegativeSampler(Sampler):
    """Takes the classes that the model ranks highest: hard, but **no probability sample**.

    Formula: candidates of x = the classes of rank ``first_rank`` … ``first_rank`` + ``num_ranks``
    − 1 under F(x, ·), rank 0 being the best; if these are more than num_samples, a random subset.
    log Q = 0 for every candidate and target, which means *not corrected*.

    Shapes: hidden [B, D] → candidates [B, S].

    Cost: that of ``search``: O(B·V·D) for an exact ``head.topk``, less for an index.

    Reference: Faghri et al. 2018 (hardest), Schroff et al. 2015 (semi-hard), Huang et al. 2020
    (ranks 101–500 beat the hardest).

    Use when: a trained model must tell the best few apart, beside or after a sampled loss. Avoid
    when: probabilities are wanted: no objective learns log P from these candidates.

    There is no proposal that could be corrected for: ``is_probability_sample`` is False,
    ``log_prob`` raises, ``MixtureSampler`` and ``ImportanceHead`` refuse it. ``sampled_softmax``
    and ``nce`` run, with log Q = 0, and fit a softmax or logistic loss over the few best classes
    only. The target is often among the candidates; as with every sampler the objective removes it.
    Choose ``first_rank`` > 0 (semi-hard) where the very best may well be unlabelled positives.

    >>> import torch
    >>> import widemax as wm
    >>> scorer = wm.TableScorer(4, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[1.0], [3.0], [2.0], [0.0]]))
    >>> sampler = HardNegativeSampler(4, wm.FullHead(scorer).topk)
    >>> sampler.sample(2, torch.tensor([0]), hidden=torch.ones(1, 1)).ids.tolist()
    [[1, 2]]
    """

    is_probability_sample = False
    per_example = True

    def __init__(
        self,
        num_classes: int,
        search: Search,
        *,
        first_rank: int = 0,
        num_ranks: int | None = None,
    ) -> None:
        super().__init__(num_classes)
        if not callable(search):
            raise ValueError(f"search must be a function (hidden, k) → ids, got {search!r}")
        self.search = search
        self.first_rank = check_whole("first_rank", first_rank, 0, num_classes - 1)
        if num_ranks is not None:
            num_ranks = check_whole("num_ranks", num_ranks, 1, num_classes - self.first_rank)
        self.num_ranks = num_ranks

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
        num_samples = self._check_num_samples(num_samples, len(targets))
        if hidden is None or hidden.dim() != 2 or len(hidden) != len(targets):
            raise ValueError(
                f"hidden must have shape [{len(targets)}, D]: hard negatives depend on it; got "
                f"{None if hidden is None else list(hidden.shape)}"
            )
        ids = self._ranked(hidden, self.num_ranks or num_samples)
        if num_samples < ids.shape[1]:
            order = torch.rand(ids.shape, device=ids.device, generator=generator).argsort(1)
            ids = ids.gather(1, order[:, :num_samples])
        return Candidates(
            ids=ids,
            log_expected_count=torch.zeros(ids.shape, dtype=torch.float64, device=ids.device),
            target_log_expected_count=torch.zeros(
                targets.shape, dtype=torch.float64, device=targets.device
            ),
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Raise ValueError: hard negatives are not drawn from any distribution."""
        raise ValueError(
            "HardNegativeSampler has no log_prob: its candidates are the best of the model, not "
            "draws from a distribution. It cannot be mixed or corrected for; add the loss of a "
            "head of its own to that of a sampled head instead"
        )

    def _check_num_samples(self, num_samples: int | None, rows: int) -> int:
        number = check_num_samples(
            self.num_ranks if num_samples is None else num_samples, rows=rows
        )
        most = self.num_ranks or self.num_classes - self.first_rank
        if number > most:
            raise ValueError(
                f"num_samples must be at most {most:,}, the ranks from first_rank = "
                f"{self.first_rank:,} on, got {number:,}"
            )
        return number

    @torch.no_grad()
    def _ranked(self, hidden: Tensor, num_ranks: int) -> Tensor:
        """Return the classes of the ranks asked for, [B, num_ranks]."""
        wanted = self.first_rank + num_ranks
        found = self.search(hidden.detach(), wanted)
        ids = found.ids if isinstance(found, TopK) else torch.as_tensor(found)
        if ids.shape != (len(hidden), wanted):
            raise ValueError(
                f"search must return ids of shape {[len(hidden), wanted]}, got {list(ids.shape)}"
            )
        # An index marks what it did not find by −1; that is no class, and here an error.
        return check_ids("search's ids", ids[:, self.first_rank :], self.num_classes)
