"""Fitting iALS, item neighbours and EASE, against `implicit` and plain LAPACK.

iALS and neighbours are fitted to Gowalla, EASE to MovieLens 1M, each from lists of items a user. On
both sides the clock starts with the same lists in the form that is usual there, and ends with a
fitted model. Before, the results are compared: iALS must have a loss no higher than the peer's,
which has the same objective, and as good a Recall@20 on the valid file; neighbours and the weights
of EASE must be the same. The data are the folders ``gowalla`` and ``ml-1m`` of WIDEMAX_DATA, by
default ../shared/data beside the checkout.

    python benchmarks/baselines.py [--threads 1] [--json FILE] [--check]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

from _harness import DATA, Report, command_line, interleaved
from widemax.data import Holdout, Sequences
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.models.baselines import EASE, IALS, ItemKNN
from widemax.models.baselines.base import distinct

DIMENSION, SWEEPS, CONFIDENCE, REGULARISATION = 64, 10, 10.0, 1.0
NEIGHBOURS, EASE_REGULARISATION, K = 100, 500.0, 20
ALLOWED = 1.2
# Recall@20 on Gowalla's valid file differs by about this much between seeds.
SEEDS_APART = 0.001


def gowalla(name: str) -> Sequences:
    """Return the items of each line ``user item item …``."""
    lines = (DATA / "gowalla" / name).read_text().splitlines()
    return Sequences.from_lists([[int(item) for item in line.split()[1:]] for line in lines])


def movielens(path: Path) -> Sequences:
    """Return the items of each user of lines ``user item``, numbered from 0."""
    users, items = np.loadtxt(path, dtype=np.int64).T
    order, counts = np.argsort(users, kind="stable"), np.unique(users, return_counts=True)[1]
    ids = np.unique(items, return_inverse=True)[1][order]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Sequences(torch.from_numpy(ids), torch.from_numpy(offsets))


def as_matrix(sequences: Sequences, num_classes: int) -> Any:
    """Return who had what as the sparse matrix that the peers take."""
    sets = distinct(sequences)
    ones = np.ones(len(sets.values), np.float32)
    shape = (len(sets), num_classes)
    return scipy.sparse.csr_matrix((ones, sets.values.numpy(), sets.offsets.numpy()), shape)


class Clocks:
    """Times ways in turn, by the processor's time of all threads and by the time that passes."""

    def __init__(self, report: Report, repeats: int) -> None:
        self._report, self._repeats = report, repeats

    def compare(
        self, what: str, ours: Callable[[], object], peer: str, theirs: Callable[[], Any]
    ) -> None:
        ways = {"widemax": ours, peer: theirs}
        for unit, clock in (("s", time.perf_counter), ("s, all threads", time.process_time)):
            taken = interleaved(ways, self._repeats, warmup=1, clock=clock)
            for name, seconds in taken.items():
                self._report.add(f"{what}: {name} ({unit})", seconds)
            ratio = taken["widemax"] / taken[peer]
            self._report.add(f"{what}: widemax / {peer} ({unit})", ratio, ALLOWED, "at most")


def ials_loss(users: torch.Tensor, items: torch.Tensor, train: Sequences) -> float:
    """Return the objective of both in float64, without the products of all users and items."""
    users, items, sets = users.double(), items.double(), distinct(train)
    owners = torch.arange(len(sets)).repeat_interleave(sets.lengths)
    scores = (users[owners] * items[sets.values]).sum(1)
    everything = ((users.T @ users) * (items.T @ items)).sum()
    chosen = ((1 + CONFIDENCE) * (1 - scores) ** 2 - scores**2).sum()
    return float(
        everything + chosen + REGULARISATION * (users.square().sum() + items.square().sum())
    )


def recall(model: IALS, train: Sequences, valid: Sequences) -> float:
    asked = (valid.lengths > 0).nonzero()[:, 0]
    holdout = Holdout(train.chosen(asked), valid.chosen(asked), asked)
    report = evaluate_recommendations(model.topk, holdout, ks=(K,), max_history=2000)
    return report.metrics()[f"recall@{K}"]


def compare_ials(report: Report, clocks: Clocks, train: Sequences, threads: int) -> None:
    from implicit.als import AlternatingLeastSquares

    valid = gowalla("valid.txt")
    num_classes = 1 + int(max(train.values.max(), valid.values.max()))
    matrix = as_matrix(train, num_classes)

    def ours() -> IALS:
        model = IALS(
            num_classes,
            dimension=DIMENSION,
            regularisation=REGULARISATION,
            penalty_power=0.0,
            confidence=CONFIDENCE,
            num_sweeps=SWEEPS,
        )
        model.fit(train)
        return model

    def theirs() -> Any:
        model = AlternatingLeastSquares(
            factors=DIMENSION,
            regularization=REGULARISATION,
            alpha=CONFIDENCE,
            iterations=SWEEPS,
            num_threads=threads,
            random_state=0,
        )
        model.fit(matrix, show_progress=False)
        return model

    model, peer = ours(), theirs()
    peer_items = torch.from_numpy(peer.item_factors)
    users = model.user_vectors(padded(distinct(train)))
    own_loss = ials_loss(users, model.item_vectors, train)
    peer_loss = ials_loss(torch.from_numpy(peer.user_factors), peer_items, train)
    report.add("iALS: loss, widemax / implicit", own_loss / peer_loss, 1.0, "at most")
    own_recall = recall(model, train, valid)
    with torch.no_grad():
        model.item_vectors.copy_(peer_items)
        model.gram.copy_(peer_items.double().T @ peer_items.double())
    peer_recall = recall(model, train, valid)
    report.add(f"iALS: Recall@{K}, widemax", own_recall, peer_recall - SEEDS_APART)
    report.add(f"iALS: Recall@{K}, implicit", peer_recall)
    clocks.compare("iALS", ours, "implicit", theirs)


def padded(sets: Sequences) -> torch.Tensor:
    """Return all sets as one tensor, -1 where there is no item."""
    places = torch.arange(int(sets.lengths.max()))
    whole = torch.full((len(sets), len(places)), -1)
    whole[places < sets.lengths[:, None]] = sets.values
    return whole


def compare_neighbours(report: Report, clocks: Clocks, train: Sequences, threads: int) -> None:
    from implicit.nearest_neighbours import CosineRecommender

    num_classes = 1 + int(train.values.max())
    matrix = as_matrix(train, num_classes)

    def ours() -> ItemKNN:
        model = ItemKNN(num_classes, num_neighbours=NEIGHBOURS, shrinkage=0.0)
        model.fit(train)
        return model

    def theirs() -> Any:
        model = CosineRecommender(K=NEIGHBOURS + 1, num_threads=threads)  # one is the item itself
        model.fit(matrix, show_progress=False)
        return model

    # Of equal similarities either side may keep another one: sums do not depend on which.
    own = ours().similarities.sum(1).numpy()
    found = theirs().similarity
    peer = np.asarray(found.sum(1))[:, 0] - found.diagonal()
    report.add(
        "item-kNN: largest difference of similarities", np.abs(own - peer).max(), 1e-3, "at most"
    )
    clocks.compare("item-kNN", ours, "implicit", theirs)


def compare_ease(report: Report, clocks: Clocks, train: Sequences) -> None:
    num_classes = 1 + int(train.values.max())
    matrix = as_matrix(train, num_classes).astype(np.float64)

    def ours() -> EASE:
        model = EASE(num_classes, regularisation=EASE_REGULARISATION)
        model.fit(train)
        return model

    def theirs() -> np.ndarray:
        gram = np.asfortranarray((matrix.T @ matrix).toarray())
        np.fill_diagonal(gram, gram.diagonal() + EASE_REGULARISATION)
        factor, _ = scipy.linalg.lapack.dpotrf(gram, lower=1, overwrite_a=1)
        lower, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
        inverse = np.tril(lower) + np.tril(lower, -1).T
        inverse /= -inverse.diagonal().copy()
        np.fill_diagonal(inverse, 0.0)
        return inverse.astype(np.float32)

    difference = np.abs(ours().weight.numpy() - theirs()).max()
    report.add("EASE: largest difference of weights", difference, 1e-6, "at most")
    clocks.compare("EASE", ours, "LAPACK", theirs)


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    options = arguments()
    try:
        import implicit  # noqa: F401
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise SystemExit(f"{error}: pip install -e '.[bench]' to compare with it") from error
    for folder in ("gowalla", "ml-1m"):
        if not (DATA / folder).is_dir():
            raise SystemExit(f"there is no {folder} in the folder of data (set WIDEMAX_DATA)")
    torch.set_num_threads(options.threads)
    report = Report(options)
    clocks = Clocks(report, options.repeats)
    train = gowalla("train.txt")
    # implicit wants BLAS to keep to one thread: it starts its own.
    with threadpool_limits(1, "blas"):
        compare_ials(report, clocks, train, options.threads)
        compare_neighbours(report, clocks, train, options.threads)
    with threadpool_limits(options.threads, "blas"):
        compare_ease(report, clocks, movielens(DATA / "ml-1m" / "ml-1m.txt"))
    report.finish()


if __name__ == "__main__":
    main()
