"""New items beside the known ones that they are most like, for vectors that nobody trained."""

from __future__ import annotations

import torch
from torch import Tensor

from widemax.scoring import Scorer, ShardedTableScorer, TableScorer
from widemax.validation import ABSENT, check_tensor, check_whole

_PAIRS_AT_ONCE = 2**21


def nearest_known(codes: Tensor, known: Tensor, k: int, *, numbers: Tensor | None = None) -> Tensor:
    """Return for each new item the ``k`` known ones that are most like it, int64 [V, k].

    ``codes`` int64 [V, F] are categorical features, 0 where one is unknown; ``known`` is bool [V].
    Candidates are the known items with the same first feature (the market), or all if there are
    none. Most like is who shares most features, then who is nearest by ``numbers`` [V, M] (NaN
    counts as 0), then the lower id. Rows of known items are -1, as are places for which there is no
    item that shares a feature.

    >>> codes = torch.tensor([[1, 1], [1, 2], [2, 2], [1, 2]])
    >>> nearest_known(codes, torch.tensor([True, True, True, False]), 2).tolist()
    [[-1, -1], [-1, -1], [-1, -1], [1, 0]]
    """
    if check_tensor("known", known).shape != codes.shape[:1] or known.dtype != torch.bool:
        raise ValueError(
            f"known must be bool [{len(codes):,}], got {known.dtype} {list(known.shape)}"
        )
    k = check_whole("k", k, 1, 2**20)
    nearest = torch.full((len(codes), k), ABSENT)
    places = torch.zeros(len(codes), 0) if numbers is None else numbers.double().nan_to_num()
    everyone = known.nonzero()[:, 0]
    for market in torch.unique(codes[~known, 0]).tolist():
        new = (~known & (codes[:, 0] == market)).nonzero()[:, 0]
        there = everyone[codes[everyone, 0] == market] if market else everyone[:0]
        others = there if len(there) else everyone
        for block in new.split(max(1, _PAIRS_AT_ONCE // max(1, len(others)))):
            found = _most_like(codes, places, block, others, k)
            nearest[block, : found.shape[1]] = found
    return nearest


def _most_like(codes: Tensor, places: Tensor, new: Tensor, others: Tensor, k: int) -> Tensor:
    """Return the best of ``others`` for each of the new items, -1 for those that share nothing."""
    shared = torch.zeros(len(new), len(others), dtype=torch.float64)
    for column in codes.unbind(1):
        shared += (column[new, None] == column[others]) & (column[others] > 0)
    distance = torch.cdist(places[new], places[others])
    # A distance is less than one feature, however large it is.
    likeness = shared - distance / (1 + distance)
    best = likeness.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return others[best].masked_fill(shared.gather(1, best) == 0, ABSENT)


@torch.no_grad()
def place_new_items(table: Tensor, nearest: Tensor) -> None:
    """Set the rows of new items to the mean of those of their nearest known ones, in place.

    ``table`` is [V, D], ``nearest`` as from ``nearest_known``; a row without any stays as it is.

    >>> table = torch.tensor([[2.0], [4.0], [0.0]])
    >>> place_new_items(table, torch.tensor([[-1, -1], [-1, -1], [0, 1]]))
    >>> table[2].item()
    3.0
    """
    rows, means = _means(table, nearest)
    table[rows] = means


@torch.no_grad()
def place_new_classes(scorer: Scorer, nearest: Tensor) -> None:
    """Do the same for the class vectors and biases of a scorer, if it has a table of them.

    >>> scorer = TableScorer(3, 1)
    >>> _ = scorer.weight.data.copy_(torch.tensor([[2.0], [4.0], [0.0]]))
    >>> place_new_classes(scorer, torch.tensor([[-1, -1], [-1, -1], [0, 1]]))
    >>> scorer.weight[2].item()
    3.0
    """
    if isinstance(scorer, TableScorer):
        for table in (scorer.weight, scorer.bias):
            if table is not None:
                place_new_items(table.data, nearest)
    elif isinstance(scorer, ShardedTableScorer):
        vectors, biases = scorer.class_vectors(), scorer.class_biases()
        for name, classes in scorer.class_tables().items():
            whole = vectors if name.startswith("weights") else biases
            assert whole is not None
            rows, means = _means(whole, nearest)
            own = torch.isin(rows, torch.tensor(list(classes)))
            places = (rows[own] - classes.start).div(classes.step, rounding_mode="floor")
            scorer.get_parameter(name).data[places] = means[own]


def _means(table: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that have neighbours, and the mean of the neighbours of each."""
    rows = (nearest >= 0).any(1).nonzero()[:, 0]
    near = nearest[rows]
    there = (near >= 0).to(table.dtype)
    vectors = table[near.clamp(min=0)]
    weights = (there / there.sum(1, keepdim=True)).view(*near.shape, *(1,) * (table.dim() - 1))
    return rows, (vectors * weights).sum(1)
