"""Scorer × sampler × objective as a head."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from widemax.candidates import Candidates, InnerProduct
from widemax.declarations import Option, declare
from widemax.heads.base import SamplerHead
from widemax.heads.batch import Batch
from widemax.heads.interests import best_scores, check_interests
from widemax.heads.masks import hits_by_class, hits_by_query, own_rows, without_own_rows
from widemax.heads.starting import start_biases
from widemax.objectives import Objective, find_from_factors, is_keeping_hits, sampled_softmax
from widemax.sampling import Sampler
from widemax.scoring import Scorer
from widemax.scoring.base import is_plain
from widemax.validation import Counts, check_ids, check_tensor, check_whole


@declare.head(
    "sampled",
    options=[
        Option(
            "num_groups",
            1,
            "Parts of a batch that draw classes of their own: more of them at the same cost.",
            least=1,
            most=2**16,
        ),
    ],
    slots=["scorer", "sampler", "objective"],
    traits=["vectors", "sparse", "kernel"],
)
class SampledHead(SamplerHead):
    """Any scorer, any sampler and any objective, put together.

    Formula: L = objective(F(x, t), F(x, S), log Q(t), log Q(S)), S drawn by the sampler.

    An objective that keeps hits (``nce``) gets candidates from the batch without those of the
    example's own row, and the expected counts of the others.

    An objective that asks for ``num_classes`` (``gbce``) gets it from the scorer. A logistic
    objective says where its scores start: biases of the scorer that are all 0 are set to that,
    from ``counts`` [V] (how often each class is a target) if given, else from the sampler.

    Shapes: as ``Head``; ``query_ids`` [B] names the query (the user) of each example; ``history``
    [B, H], padded with -1, lists classes that must not be negatives of that example.

    Cost: O(B·S·D) for S = ``num_samples``; memory O(B·S). Evaluation (``log_prob``, ``topk``) is
    exact and does not depend on the sampler.

    Reference: the candidate-sampling table; the default objective: Jean 2015.

    Use when: V is so large that the exact step is too slow. Avoid when: it is not
    (``FullHead`` has no bias).

    >>> import widemax as wm
    >>> scorer, sampler = wm.TableScorer(1000, 16), wm.UniformSampler(1000, unique=True)
    >>> head = wm.SampledHead(scorer, sampler, objective=wm.sampled_softmax, num_samples=999)
    >>> _ = scorer.weight.data.zero_()
    >>> round(head(torch.randn(8, 16), torch.arange(8)).mean().item(), 2)  # near log 1000
    6.91
    """

    def __init__(
        self,
        scorer: Scorer,
        sampler: Sampler,
        *,
        objective: Objective = sampled_softmax,
        num_samples: int | None = None,
        num_groups: int = 1,
        counts: Counts | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(scorer, sampler, num_samples, ignore_index)
        self.num_groups = check_whole("num_groups", num_groups, 1, 2**16)
        if not callable(objective):
            raise ValueError(f"objective must be a function, got {objective!r}")
        self.objective = _knowing(objective, self.num_classes)
        start_biases(scorer, sampler, self.objective, num_samples, counts)

    def with_objective(self, objective: Objective) -> SampledHead:
        """Return a head on the same scorer and sampler."""
        other = self.with_sampler(self.sampler, self.num_samples)
        other.objective = _knowing(objective, self.num_classes)
        return other

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        weights: Tensor | None = None,
        query_ids: Tensor | None = None,
        history: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw candidates and return the objective of each example, [B]."""
        # All is checked before anything is drawn: a refused batch must not teach the sampler.
        batch = self._read_batch(hidden, targets, weights, generator)
        if history is not None:
            history = check_ids("history", history, self.num_classes, absent=True)
            _check_shape("history", history, len(hidden), "H")
        if query_ids is not None:
            _check_shape("query_ids", query_ids, len(hidden))
        query_ids, history = batch.select(query_ids), batch.select(history)

        def losses_of(rows: slice, part: Batch) -> Tensor:
            queries = None if query_ids is None else query_ids[rows]
            seen = None if history is None else history[rows]
            return self._group_losses(part, queries, seen, generator)

        return self._by_group(batch, losses_of)

    def _by_group(self, batch: Batch, losses_of: Callable[[slice, Batch], Tensor]) -> Tensor:
        """Return the losses of all examples, those of a group computed together."""
        size = -(-len(batch.targets) // self.num_groups)
        if size == len(batch.targets):  # one group: a slice would cost a copy in the backward pass
            return batch.finish(losses_of(slice(None), batch))
        groups = [slice(start, start + size) for start in range(0, len(batch.targets), size)]
        return batch.finish(torch.cat([losses_of(rows, batch.part(rows)) for rows in groups]))

    def _group_losses(
        self,
        batch: Batch,
        query_ids: Tensor | None,
        history: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        candidates = self._draw(self.num_samples, batch, generator)
        of_rows = None if query_ids is None else self._queries_of_rows(query_ids)
        excluded = _excluded(candidates, query_ids, of_rows, history)
        own = self._own_rows(batch, candidates)
        if own is not None:
            candidates = without_own_rows(candidates, own)
            excluded = own if excluded is None else excluded | own
        return _zero_if_alone(self._losses(batch, candidates, excluded), own)

    def interest_losses(
        self,
        interests: Tensor,
        user: Tensor,
        targets: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the losses where a candidate scores max_k F(x_k, y), a target F(user, t), [B].

        Interests x are [B, K, D], user [B, D], targets [B].
        """
        batch = self._read_batch(user, targets, None, generator)
        interests = check_interests(interests, user, targets)
        kept = interests if batch.rows is None else interests[batch.rows]
        return self._by_group(
            batch, lambda rows, part: self._interest_losses(part, kept[rows], generator)
        )

    def _interest_losses(
        self, batch: Batch, interests: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        candidates = self._draw(self.num_samples, batch, generator)
        scores = best_scores(self.scorer, interests, candidates.ids)
        own = self._own_rows(batch, candidates)
        if own is not None:
            candidates = without_own_rows(candidates, own)
            scores = scores.masked_fill(own, -torch.inf)
        losses = self.objective(
            self._target_scores(batch).flatten(),
            scores,
            target_log_expected_count=candidates.target_log_expected_count,
            log_expected_count=candidates.log_expected_count,
            hits=hits_by_class(candidates.ids, batch.targets),
            target_mask=None,
        )
        return _zero_if_alone(losses, own)

    def _own_rows(self, batch: Batch, candidates: Candidates) -> Tensor | None:
        """Return which candidates an example brought itself, [B, S], if they must not compete.

        Where hits are kept, a target among the candidates must have been drawn: its own copy,
        which is there for certain, would count against it.
        """
        if candidates.rows is None or not is_keeping_hits(self.objective):
            return None
        return own_rows(candidates.rows, len(batch.targets))

    def _losses(self, batch: Batch, candidates: Candidates, excluded: Tensor | None) -> Tensor:
        ids = candidates.ids
        hits = hits_by_class(ids, batch.targets)
        if excluded is not None and not is_keeping_hits(self.objective):
            # What it does without is one to it, a hit or not.
            hits, excluded = hits | excluded, None
        counts_and_hits = {
            "target_log_expected_count": candidates.target_log_expected_count,
            "log_expected_count": candidates.log_expected_count,
            "hits": hits,
        }
        shared = excluded is None and ids.dim() == batch.targets.dim() == 1
        if shared and is_plain(self.scorer):
            from_factors = find_from_factors(self.objective)
            if from_factors is not None:
                product = self._inner_product(batch, ids)
                return from_factors(product, **counts_and_hits)
        flat = ids.dim() == batch.targets.dim() == 1
        if self.joined is not None and flat and is_plain(self.scorer):
            product = self._inner_product(batch, ids)
            target_scores, scores = product.target_scores(), product.candidate_scores()
        else:
            target_scores, scores = self._target_scores(batch), self.scorer(batch.hidden, ids)
        if excluded is not None:
            scores = scores.masked_fill(excluded, -torch.inf)
        mask = batch.target_mask
        return self.objective(target_scores, scores, target_mask=mask, **counts_and_hits)

    def _inner_product(self, batch: Batch, ids: Tensor) -> InnerProduct:
        if self.joined is None:
            return self.scorer.inner_product(batch.hidden, batch.targets, ids)
        return self.joined.inner_product(self.scorer, batch.hidden, batch.targets, ids)


def _zero_if_alone(losses: Tensor, own: Tensor | None) -> Tensor:
    """Return the losses, 0 where an example brought all its candidates: nothing competes."""
    return losses if own is None else losses.masked_fill(own.all(-1), 0.0)


def _knowing(objective: Callable[..., Tensor], num_classes: int) -> Objective:
    """Return an objective with the number of classes bound to it, if it asks for that."""
    wanted = inspect.signature(objective).parameters.get("num_classes")
    if wanted is None:
        return objective
    if wanted.default is inspect.Parameter.empty:
        return partial(objective, num_classes=num_classes)
    if wanted.default != num_classes:
        raise ValueError(
            f"objective must have num_classes = {num_classes:,} like the scorer, got "
            f"{wanted.default!r}; leave it out, and the head fills it in"
        )
    return objective


def _check_shape(name: str, values: Tensor, rows: int, *columns: str) -> None:
    if check_tensor(name, values).dim() != 1 + len(columns) or len(values) != rows:
        wanted = ", ".join([str(rows), *columns])
        raise ValueError(f"{name} must have shape [{wanted}], got {list(values.shape)}")


def _excluded(
    candidates: Candidates,
    query_ids: Tensor | None,
    query_ids_of_rows: Tensor | None,
    history: Tensor | None,
) -> Tensor | None:
    """Return the candidates that must not compete under any objective, bool [B, S]."""
    masks = []
    if query_ids is not None:
        if candidates.rows is None:
            raise ValueError(
                "query_ids were given, but the sampler takes no candidates from the batch; use "
                "history to keep a user's own classes out of the negatives"
            )
        masks.append(hits_by_query(candidates.rows, query_ids, query_ids_of_rows))
    if history is not None:
        masks.append(hits_by_class(candidates.ids, history))
    return torch.stack(masks).any(0) if masks else None
