"""What every head is, and the exact evaluation that all heads with a scorer share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from widemax.candidates import Candidates, ClassBlock, InnerProduct, TopK
from widemax.devices import demand
from widemax.gradients import kernels_take
from widemax.heads.batch import Batch, read_batch
from widemax.heads.exact.blockwise import block_log_normalizer, block_scores, block_topk
from widemax.sampling import Sampler
from widemax.scoring import Scorer
from widemax.scoring.base import is_plain
from widemax.scoring.rows import HALF, widened
from widemax.validation import (
    check_exclude,
    check_generator,
    check_hidden,
    check_ids,
    check_ignore_index,
    check_whole,
)


class Head(nn.Module, ABC):
    """The last layer of a model: it owns the output parameters, trains and predicts.

    Formula: ``forward`` is the training loss; ``log_prob`` is exactly normalised over all
    classes, whatever the training objective was.

    Shapes: hidden [B, D]; targets [B], or [B, T] with label 1/T for each of T positives; weights
    [B] → losses [B], unreduced. A positive that is repeated in its row counts once. Targets equal
    to ``ignore_index`` do not count; an example without another has loss 0.

    Gradients can be differentiated again (``create_graph=True``), at the memory of all scores;
    where a float32 kernel sums the candidates they cannot, and asking for it raises.

    Use when: writing a head of your own; hold it to ``widemax.check_head``. Avoid when: only the
    scores, the proposal or the loss is new (write a scorer, a sampler or an objective).
    """

    num_classes: int
    dimension: int
    """Width of the hidden states."""
    ignore_index: int = -100

    @abstractmethod
    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return one training loss per example, [B]; 0 for an ignored one."""

    @abstractmethod
    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) of the given classes ([S] shared, or [B, S]), or of all, [B, V]."""

    @abstractmethod
    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly normalised, of the given classes or of all."""

    @abstractmethod
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""

    @property
    def proposal(self) -> Sampler | None:
        """What draws the classes of a training step; None if the head draws none."""
        sampler = getattr(self, "sampler", None)
        return sampler if isinstance(sampler, Sampler) else None

    def _read_batch(
        self,
        hidden: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        generator: torch.Generator | None,
    ) -> Batch:
        """Return the examples that count; what is wrong with an argument is said by its name."""
        batch = read_batch(
            hidden,
            targets,
            weights,
            num_classes=self.num_classes,
            dimension=self.dimension,
            ignore_index=self.ignore_index,
        )
        self._check_hidden(hidden)
        check_generator(generator, hidden.device)
        return batch

    def _check_hidden(self, hidden: Tensor) -> Tensor:
        """Return ``hidden`` if it has the dimension and the precision of the parameters."""
        check_hidden(hidden, self.dimension)
        own = _own_precision(self)
        if own is not None and _precision(hidden.dtype) != _precision(own):
            raise ValueError(
                f"hidden must have the precision of the head's parameters, {own}, got "
                f"{hidden.dtype}: convert one of them"
            )
        traced = torch.compiler.is_compiling()  # which cannot ask a tensor for that
        if not traced and torch.is_grad_enabled() and hidden.is_inference():
            raise ValueError(
                "hidden was made in inference mode, where nothing has a gradient: clone it, or "
                "call the head in inference mode too"
            )
        return hidden

    def _check_ids(self, hidden: Tensor, ids: Tensor) -> Tensor:
        ids, rows = check_ids("ids", ids, self.num_classes), len(hidden)
        if ids.dim() != 1 and (ids.dim() != 2 or len(ids) != rows):
            raise ValueError(f"ids must have shape [S] or [{rows}, S], got {list(ids.shape)}")
        return ids

    def _check_topk(
        self, hidden: Tensor, k: int, exclude: Tensor | None
    ) -> tuple[int, Tensor | None]:
        self._check_hidden(hidden)
        k = check_whole("k", k, 1, self.num_classes)
        if exclude is not None:
            exclude = check_exclude(exclude, len(hidden), self.num_classes)
        return k, exclude


@runtime_checkable
class InterestsHead(Protocol):
    """A head that trains on the best score of each class over several hidden states."""

    def interest_losses(
        self,
        interests: Tensor,
        user: Tensor,
        targets: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return one loss per example, [B]: the target scores F(user, t), others max_k F(x_k, y).

        Interests x are [B, K, D], user [B, D], targets [B].
        """


def _own_precision(module: nn.Module) -> torch.dtype | None:
    """Return the type of the first parameter that is no whole number.

    As ``parameters()`` goes over them, without the layers of generators that it has.
    """
    for each in module._parameters.values():
        if each is not None and each.is_floating_point():
            return each.dtype
    for part in module._modules.values():
        own = None if part is None else _own_precision(part)
        if own is not None:
            return own
    return None


def _precision(dtype: torch.dtype) -> torch.dtype:
    """Return what is computed in where values have this type."""
    return torch.float32 if dtype in HALF else dtype


class BatchHead(Head):
    """A head whose loss needs no more than a batch: it is read, checked and weighted here.

    Formula: forward = weights · ``batch_losses``, 0 for an example without a positive.

    Use when: writing a head whose ``forward`` takes no further arguments.
    """

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the training loss of each example, [B]; 0 for an ignored one."""
        batch = self._read_batch(hidden, targets, weights, generator)
        return batch.finish(self.batch_losses(batch, generator))

    @abstractmethod
    def batch_losses(self, batch: Batch, generator: torch.Generator | None) -> Tensor:
        """Return the losses of the examples that count; what is drawn comes from ``generator``."""


class ScorerHead(Head):
    """A head with a scorer: its evaluation is exact, tile by tile, for every objective.

    Formula: log P(y | x) = F(x, y) − LSE over all classes of F(x, ·).

    Cost: O(B·V·D) time; beside the result a few tiles of memory, never [B, V].

    Use when: writing a head whose classes have vectors. Avoid when: they have none (trees).

    >>> import torch
    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(100, 8))
    >>> round(head.log_prob(torch.randn(2, 8)).exp().sum().item(), 4)
    2.0
    """

    def __init__(self, scorer: Scorer, *, ignore_index: int = -100) -> None:
        if not callable(getattr(scorer, "class_vectors", None)):
            raise ValueError(f"scorer must be a Scorer, got {type(scorer).__name__}")
        super().__init__()
        self.scorer = scorer
        self.num_classes, self.dimension = scorer.num_classes, scorer.dimension
        self.ignore_index = check_ignore_index(ignore_index)

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return F(x, y) of the given classes ([S] shared, or [B, S]), or of all, [B, V]."""
        self._check_hidden(hidden)
        if ids is not None:
            ids = self._check_ids(hidden, ids)
        scores: Tensor = self.scorer(hidden, ids)
        return scores

    def products(self, hidden: Tensor) -> Sequence[ClassBlock] | None:
        """Return all classes as factors whose products are their scores, in float32 for kernels.

        None where there is more to a score, or kernels cannot work on it.
        """
        plain = is_plain(self.scorer) and type(self).scores is ScorerHead.scores
        if not plain or torch.is_autocast_enabled("cpu"):
            return None
        blocks = self._blocks(self._check_hidden(hidden))
        first = blocks[0]  # of all blocks: to look at each may mean to make it
        parts = first.queries, widened(first.vectors[:1]), first.biases
        return blocks if kernels_take(*parts) else None

    def log_normalizer(self, hidden: Tensor) -> Tensor:
        """Return log Z(x), [B], exactly."""
        return block_log_normalizer(self._blocks(self._check_hidden(hidden)))

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | x), exactly normalised, of the given classes or of all."""
        blocks = self._blocks(self._check_hidden(hidden))
        log_normalizer = block_log_normalizer(blocks)[:, None]
        scores = block_scores(blocks, None if ids is None else self._check_ids(hidden, ids))
        if torch.is_grad_enabled():
            return scores - log_normalizer
        # The result may be [B, V]: with no graph to keep, it is not allocated twice.
        return scores.sub_(log_normalizer)

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes, leaving out ``exclude`` [B, E], padded with -1."""
        k, exclude = self._check_topk(hidden, k, exclude)
        return block_topk(self._blocks(hidden), k, exclude=exclude)

    def _blocks(self, hidden: Tensor) -> Sequence[ClassBlock]:
        """Return all classes as the scorer puts them into blocks."""
        return self.scorer.blocks(hidden)

    def _target_scores(self, batch: Batch) -> Tensor:
        """Return F(x, t) in the shape of the targets; of class 0 where one is absent."""
        scores: Tensor = self.scorer(batch.hidden, batch.target_ids)
        return scores.view(batch.targets.shape)


class JoinedBatch(Protocol):
    """The batches of several processes as one: what is drawn, is drawn for all of them."""

    def draw(
        self,
        sampler: Sampler,
        num_samples: int | None,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> Candidates:
        """Return the candidates of all batches, with the counts of the targets of this one.

        ``rows`` count the rows of this batch first, then those of the others.
        """

    def all_rows(self, values: Tensor) -> Tensor:
        """Return the values of the rows of all batches, those of this one first."""

    def inner_product(
        self, scorer: Scorer, hidden: Tensor, targets: Tensor, ids: Tensor
    ) -> InnerProduct:
        """Return the factors of a scorer, each vector computed by one process, for all."""


class SamplerHead(ScorerHead):
    """A head with a scorer that trains on what a sampler draws."""

    joined: JoinedBatch | None = None
    """How this batch is one with those of other processes; None: it stands alone."""

    def __init__(
        self, scorer: Scorer, sampler: Sampler, num_samples: int | None, ignore_index: int
    ) -> None:
        super().__init__(scorer, ignore_index=ignore_index)
        if not callable(getattr(sampler, "sample", None)):
            raise ValueError(f"sampler must be a Sampler, got {type(sampler).__name__}")
        if scorer.num_classes != sampler.num_classes:
            raise ValueError(
                f"scorer and sampler must have the same num_classes, got {scorer.num_classes:,} "
                f"and {sampler.num_classes:,}"
            )
        self.sampler = sampler
        self.num_samples = num_samples

    def with_sampler(self, sampler: Sampler, num_samples: int | None) -> Self:
        """Return a head on the same scorer, of which nothing is copied or started anew."""
        other = copy(self)
        other._modules = dict(self._modules)
        other.sampler, other.num_samples = sampler, num_samples
        return other

    def _draw(
        self, num_samples: int | None, batch: Batch, generator: torch.Generator | None
    ) -> Candidates:
        traced = generator is None and getattr(self.sampler, "traced", False)
        draw = _draw if traced or not torch.compiler.is_compiling() else _draw_untraced
        if self.joined is not None:
            candidates = self.joined.draw(self.sampler, num_samples, batch, generator)
        else:
            candidates = draw(self.sampler, num_samples, batch, generator)
        if batch.kept is not None and (candidates.rows is not None or learns(self.sampler)):
            # Class 0 stands for them, which is no target.
            demand(batch.kept.all(), f"{type(self.sampler).__name__} takes no ignored targets here")
        return candidates

    def _queries_of_rows(self, query_ids: Tensor) -> Tensor:
        """Return the queries of all rows that ``Candidates.rows`` counts."""
        return query_ids if self.joined is None else self.joined.all_rows(query_ids)


def _draw(
    sampler: Sampler, num_samples: int | None, batch: Batch, generator: torch.Generator | None
) -> Candidates:
    return sampler.sample(num_samples, batch.targets, hidden=batch.hidden, generator=generator)


def learns(sampler: Sampler) -> bool:
    """Return whether the targets of a batch teach a sampler, or a part of it, something."""
    parts = (each for each in sampler.modules() if isinstance(each, Sampler))
    return any(type(each).update is not Sampler.update for each in parts)


# Kernels and generators are nothing a compiler can trace. torch.compiler.disable would load the
# compiler here, which takes two seconds.
_draw_untraced = _disable_dynamo(_draw)
