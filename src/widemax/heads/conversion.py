"""Moving trained weights between heads: train with one, serve or continue with another.

Heads with a scorer differ in how they train, not in what they know: F(x, y), so they can share a
scorer as it is. Tables differ in similarity and temperature: their weights are rescaled so that
the scores stay the same, or the conversion is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.heads.base import ScorerHead
from widemax.heads.full import FullHead
from widemax.heads.sampled import SampledHead
from widemax.objectives import Objective, sampled_softmax
from widemax.sampling import Sampler
from widemax.scoring import Scorer, TableScorer


def as_full_head(head: ScorerHead) -> FullHead:
    """Return a head that trains exactly on the scorer of another, which both then share.

    No weight is copied: what one head learns the other knows, and both predict the same.

    >>> import widemax as wm
    >>> sampled = wm.SampledHead(wm.TableScorer(100, 8), wm.UniformSampler(100), num_samples=10)
    >>> as_full_head(sampled).scorer.weight is sampled.scorer.weight
    True
    """
    return FullHead(head.scorer, ignore_index=head.ignore_index)


def as_sampled_head(
    head: ScorerHead,
    sampler: Sampler,
    *,
    objective: Objective = sampled_softmax,
    num_samples: int | None = None,
) -> SampledHead:
    """Return a head that trains on samples with the scorer of another, which both then share.

    No weight is copied; only the training loss changes. An objective that learns something else
    than the old one (log odds, log P/Q) moves F there.

    >>> import widemax as wm
    >>> full = wm.FullHead(wm.TableScorer(100, 8))
    >>> as_sampled_head(full, wm.LogUniformSampler(100), num_samples=10).num_samples
    10
    """
    return SampledHead(
        head.scorer,
        sampler,
        objective=objective,
        num_samples=num_samples,
        ignore_index=head.ignore_index,
    )


@torch.no_grad()
def class_vectors_of(source: ScorerHead | Scorer) -> Tensor:
    """Return a copy of the vectors of all classes, [V, D], whatever scorer they come from.

    They are v_y of F(x, y) = query(x) · v_y + b_y, of length 1 where the similarity is cosine:
    what a tree of clusters or an index is built from.

    >>> import widemax as wm
    >>> class_vectors_of(wm.FullHead(wm.TableScorer(100, 8))).shape
    torch.Size([100, 8])
    """
    scorer = _scorer_of(source)
    training = {module: module.training for module in scorer.modules()}
    # Vectors that are computed may pass through dropout; what is copied must not.
    scorer.eval()
    try:
        return scorer.class_vectors().detach().clone()
    finally:
        for module, mode in training.items():
            module.training = mode


def as_table(source: ScorerHead | Scorer, *, unit_hidden: bool = False) -> TableScorer:
    """Return a plain table, x·v_y + b_y, with the scores of any scorer.

    v'_y = v_y / τ, b'_y = b_y, so F'(x, y) = F(x, y) for every x; where the similarity is cosine
    only for x of length 1, which ``unit_hidden=True`` promises. Its ``state_dict`` loads into
    ``nn.Linear``. A scorer with queries of its own is refused.

    >>> import widemax as wm
    >>> scorer, hidden = wm.TableScorer(100, 8, temperature=0.1), torch.randn(2, 8)
    >>> torch.allclose(as_table(scorer)(hidden), scorer(hidden), atol=1e-5)
    True
    """
    scorer = _scorer_of(source)
    _check_scale(scorer, unit_hidden=unit_hidden)
    biases = scorer.class_biases()
    vectors = class_vectors_of(scorer)
    table = TableScorer(scorer.num_classes, scorer.dimension, bias=biases is not None)
    table.to(device=vectors.device, dtype=vectors.dtype)
    _write(table, vectors / _temperature(scorer), biases)
    return table


def copy_class_vectors(
    source: ScorerHead | Scorer, into: TableScorer, *, unit_hidden: bool = False
) -> None:
    """Load the vectors and biases of any scorer into a table, in place, keeping the scores.

    v'_y = v_y · τ' / τ, b'_y = b_y: with similarity "dot" F'(x, y) = F(x, y) for every x, whatever
    the two temperatures. Between two cosine tables of one temperature v' = v. From cosine to dot
    the scores agree for x of length 1, which ``unit_hidden=True`` promises. What would change the
    scores is refused: dot to cosine, two cosine tables of different temperature, biases into a
    table without. A table tied to an embedding stays tied.

    >>> import widemax as wm
    >>> old, new = wm.TableScorer(100, 8), wm.TableScorer(100, 8, bias=True, temperature=0.5)
    >>> copy_class_vectors(old, new)
    >>> hidden = torch.randn(2, 8)
    >>> torch.allclose(old(hidden), new(hidden), atol=1e-5)
    True
    """
    scorer = _scorer_of(source)
    if (scorer.num_classes, scorer.dimension) != (into.num_classes, into.dimension):
        raise ValueError(
            f"source has {scorer.num_classes:,} classes of dimension {scorer.dimension:,}, but "
            f"into has {into.num_classes:,} of dimension {into.dimension:,}"
        )
    biases = scorer.class_biases()
    if biases is not None and into.bias is None and bool(biases.any()):
        raise ValueError("source has biases but into was made with bias=False: they would be lost")
    if into.similarity == "dot":
        _check_scale(scorer, unit_hidden=unit_hidden)
        vectors = class_vectors_of(scorer) * (into.temperature / _temperature(scorer))
    elif not isinstance(scorer, TableScorer) or scorer.similarity != "cosine":
        raise ValueError(
            "into has similarity 'cosine' but source has not: the lengths of its vectors would be "
            "lost"
        )
    elif scorer.temperature != into.temperature:
        raise ValueError(
            f"source and into must have the same temperature where the similarity is cosine, got "
            f"{scorer.temperature:g} and {into.temperature:g}"
        )
    else:
        vectors = class_vectors_of(scorer)
    _write(into, vectors, biases)


@torch.no_grad()
def _write(table: TableScorer, vectors: Tensor, biases: Tensor | None) -> None:
    table.weight.copy_(vectors)
    if table.bias is not None:
        table.bias.zero_() if biases is None else table.bias.copy_(biases)


def _check_scale(scorer: Scorer, *, unit_hidden: bool) -> None:
    """Refuse a scorer whose queries are not hidden / τ: no plain table has its scores."""
    if type(scorer).queries not in (Scorer.queries, TableScorer.queries):
        raise ValueError(
            f"source is a {type(scorer).__name__} with queries of its own: no table has its "
            "scores; take class_vectors_of(source) and multiply with source.queries(hidden)"
        )
    if isinstance(scorer, TableScorer) and scorer.similarity == "cosine" and not unit_hidden:
        raise ValueError(
            "source has similarity 'cosine': a plain table has its scores only for hidden states "
            "of length 1; scale them and pass unit_hidden=True"
        )


def _temperature(scorer: Scorer) -> float:
    return scorer.temperature if isinstance(scorer, TableScorer) else 1.0


def _scorer_of(source: ScorerHead | Scorer) -> Scorer:
    if isinstance(source, ScorerHead):
        return source.scorer
    if isinstance(source, Scorer):
        return source
    raise ValueError(
        f"source must be a scorer or a head with one, got {type(source).__name__}: its classes "
        "have no vectors"
    )
