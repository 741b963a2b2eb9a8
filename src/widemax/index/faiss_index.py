"""Approximate indexes, by Faiss."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from widemax.candidates import TopK, merge_topk
from widemax.extras import import_extra
from widemax.heads import ScorerHead
from widemax.index.base import Index
from widemax.index.rows import ClassRows
from widemax.index.sphere import classes_on_sphere, queries_on_sphere
from widemax.validation import ABSENT, check_whole

# A search for a larger share of the classes visits so many that the products of all cost less.
_LARGEST_SHARE = 1 / 50
# Of what passes a filter in one class of two, twice as many are asked for, and as many again.
_OVERFETCH = 2
_MOST_LINKS, _MOST_BREADTH = 512, 2**20
_MOST_PAIRS = 2**16
"""Of so many pairs of ids each is compared; of more, one side is sorted first."""
_FEW = 128
"""Of so many candidates of one row Python finds the best sooner than NumPy."""


class FaissIndex(Index):
    """Asks Faiss for some more classes than wanted, and scores those as the head does.

    Faiss ranks by the angle of [q, 1, 0] and [v, b, sqrt(M² − |v|² − b²)], whose order is that of F
    (Bachrach et al. 2014); F itself is then computed with the arithmetic of the head. ``exclude``
    makes it look for k + E. Where what Faiss finds leaves fewer than k classes, or more than a
    fiftieth of all is wanted, that row is searched exactly.
    """

    _faiss_index: Any
    _spare = 1
    """How many times as many classes are asked of Faiss as are wanted."""

    @classmethod
    def of_stored(cls, head: ScorerHead, faiss_index: Any) -> Self:
        """Return the index of a head around a Faiss index that was built from it before."""
        index = cls.__new__(cls)
        Index.__init__(index, head)
        index._faiss_index = faiss_index
        return index

    @property
    def faiss_index(self) -> Any:
        """What Faiss holds: row i is class i, on the sphere."""
        return self._faiss_index

    @property
    @abstractmethod
    def breadth(self) -> int:
        """How much a search looks at: more finds more, and takes longer."""

    @breadth.setter
    @abstractmethod
    def breadth(self, breadth: int) -> None: ...

    @property
    @abstractmethod
    def largest_breadth(self) -> int:
        """The breadth beyond which nothing more is found."""

    def _best(self, queries: Tensor, k: int, exclude: Tensor | None) -> TopK:
        if len(queries) == 1 and self._spare * k <= _FEW:
            found = self._best_of_few(queries, k, [] if exclude is None else exclude.tolist()[0])
            if found is not None:
                return found
        # In NumPy, whose calls on a few numbers cost a tenth of torch's, and keep Python's lock.
        left_out = None if exclude is None else exclude.cpu().numpy()
        wanted = k if left_out is None else k + _most(left_out != ABSENT)
        if self._spare * wanted > self.num_classes * _LARGEST_SHARE:
            return self.rows.best(queries, k, exclude)
        ids = self._nearest(queries, self._spare * wanted)
        absent = ids == ABSENT
        if left_out is not None:
            absent |= _is_among(ids, left_out)
        scores = self.rows.scores(queries, np.where(absent, 0, ids))
        scores[absent] = -np.inf
        if np.isnan(scores).any():
            raise ValueError("scores hold NaN: check queries and the class vectors")
        ids[scores == -np.inf] = ABSENT
        # Faiss finds no class twice: they only need their order, the lower of equal ones first.
        order = np.lexsort((ids, -scores), axis=1)[:, :k]
        rows = np.arange(len(ids))[:, None]
        best_ids, best_scores = ids[rows, order], scores[rows, order]
        best = TopK(
            ids=torch.from_numpy(best_ids).to(queries.device),
            scores=torch.from_numpy(best_scores).to(queries.device),
        )
        if (best_ids[:, -1] == ABSENT).any():
            short = best.ids[:, -1] == ABSENT
            whole = self.rows.best(queries[short], k, None if exclude is None else exclude[short])
            best.ids[short], best.scores[short] = whole.ids, whole.scores
        return best

    def _best_of_few(self, queries: Tensor, k: int, left_out: list[int]) -> TopK | None:
        """Return the same for one row, as a server is asked: Python's own lists cost the least.

        None where there are many candidates, or too few of them.
        """
        wanted = self._spare * (k + len(left_out) - left_out.count(ABSENT))
        if wanted > min(_FEW, self.num_classes * _LARGEST_SHARE):
            return None
        found = self._nearest(queries, wanted)
        ids, without = found[0].tolist(), set(left_out)
        if ABSENT in ids:
            return None
        scores = self.rows.scores(queries, found)
        pairs = [
            (-score, each)
            for score, each in zip(scores[0].tolist(), ids, strict=True)
            if each not in without and score != -math.inf
        ]
        if len(pairs) < k or any(math.isnan(score) for score, _ in pairs):
            return None
        # The lower of equal ones first.
        pairs = sorted(pairs)[:k]
        return TopK(
            ids=torch.from_numpy(np.array([[each for _, each in pairs]])),
            scores=torch.from_numpy(np.array([[-score for score, _ in pairs]], scores.dtype)),
        )

    def _best_among(self, queries: Tensor, k: int, exclude: Tensor | None, allowed: Tensor) -> TopK:
        """Ask for as many more classes as are likely to be filtered out; where that is not enough,
        go through all that are allowed."""
        share = float(allowed.float().mean())
        wanted = math.ceil(_OVERFETCH * k / max(share, 1e-9))
        if wanted > self.num_classes * _LARGEST_SHARE:
            return super()._best_among(queries, k, exclude, allowed)
        found = self._best(queries, wanted, exclude)
        passed = (found.ids >= 0) & allowed[found.ids.clamp(min=0)]
        best = merge_topk(
            [
                TopK(
                    ids=found.ids.masked_fill(~passed, ABSENT),
                    scores=found.scores.masked_fill(~passed, -torch.inf),
                )
            ],
            k,
        )
        short = best.ids[:, -1] == ABSENT
        if bool(short.any()):
            left_out = None if exclude is None else exclude[short]
            whole = super()._best_among(queries[short], k, left_out, allowed)
            best.ids[short], best.scores[short] = whole.ids, whole.scores
        return best

    def _nearest(self, queries: Tensor, wanted: int) -> NDArray[np.int64]:
        """Return the ids that Faiss finds, [B, wanted]; it too marks what it lacks by -1."""
        points = queries_on_sphere(self.known_rows, queries)
        ids: NDArray[np.int64]
        _, ids = self._faiss_index.search(points, wanted, params=self._parameters())
        return ids

    def _parameters(self) -> Any:
        """Return what makes Faiss pass over the classes that were removed; None: there are none."""
        if not self.removed.numel():
            return None
        faiss = import_extra("faiss")
        selector = faiss.IDSelectorNot(faiss.IDSelectorBatch(self.removed.numpy()))
        return self._search_parameters(faiss, selector)

    @abstractmethod
    def _search_parameters(self, faiss: Any, selector: Any) -> Any:
        """Return the parameters of a search of this breadth among what a selector takes."""

    def _add_rows(self, new: ClassRows) -> None:
        # On the sphere of those it was built from: its radius cannot change any more.
        first = ClassRows(
            self.known_rows.vectors[: self.head_classes],
            None if self.known_rows.biases is None else self.known_rows.biases[: self.head_classes],
            self.known_rows.scorer,
        )
        if len(new.vectors):
            self._faiss_index.add(classes_on_sphere(new, like=first))


def _most(there: NDArray[np.bool_]) -> int:
    """Return how many are there in the fullest row."""
    return int(np.count_nonzero(there) if len(there) == 1 else there.sum(1).max(initial=0))


def _is_among(ids: NDArray[np.int64], exclude: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which ids [B, S] are in the same row of ``exclude`` [B, E], in O(S·log E) a row."""
    if ids.size * exclude.shape[1] <= _MOST_PAIRS:
        same: NDArray[np.bool_] = (ids[:, :, None] == exclude[:, None, :]).any(axis=2)
        return same
    sought, ordered = torch.from_numpy(ids), torch.from_numpy(exclude).sort(dim=1).values
    place = torch.searchsorted(ordered, sought)
    among: NDArray[np.bool_] = (
        pad(ordered, (0, 1), value=ABSENT).gather(1, place) == sought
    ).numpy()
    return among


class HNSWIndex(FaissIndex):
    """A graph of near neighbours that is walked from coarse to fine (Malkov & Yashunin 2018).

    The walk keeps the ``search_breadth`` nearest classes met so far and ends when none of their
    neighbours is nearer: about search_breadth·links inner products, whatever V is. Building takes
    V·build_breadth·links of them, minutes for a million classes, and V·(D·4 + links·8) bytes beside
    the copy of the vectors. For single queries that must be answered at once; ``IVFIndex`` is built
    faster. The graph is the same each time if Faiss has one thread.

    >>> import torch
    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(2000, 8))
    >>> hidden = torch.randn(4, 8)
    >>> found = HNSWIndex(head).search(hidden, 5)
    >>> bool((found.scores - head.scores(hidden, found.ids)).abs().max() < 1e-5)
    True
    """

    kind = "hnsw"

    def __init__(
        self,
        head: ScorerHead,
        *,
        links: int = 16,
        build_breadth: int = 40,
        search_breadth: int = 64,
    ) -> None:
        check_whole("links", links, 2, _MOST_LINKS)
        check_whole("build_breadth", build_breadth, 1, _MOST_BREADTH)
        check_whole("search_breadth", search_breadth, 1, _MOST_BREADTH)
        faiss = import_extra("faiss")
        super().__init__(head)
        points = classes_on_sphere(self.rows)
        # On the sphere both metrics give one order; by inner product a distance is one less step.
        self._faiss_index = faiss.IndexHNSWFlat(points.shape[1], links, faiss.METRIC_INNER_PRODUCT)
        self._faiss_index.hnsw.efConstruction = build_breadth
        self._faiss_index.add(points)
        self.breadth = search_breadth

    @property
    def breadth(self) -> int:
        """How many of the nearest classes met so far the walk continues from."""
        return int(self._faiss_index.hnsw.efSearch)

    @breadth.setter
    def breadth(self, breadth: int) -> None:
        self._faiss_index.hnsw.efSearch = check_whole("breadth", breadth, 1, _MOST_BREADTH)

    @property
    def largest_breadth(self) -> int:
        """All classes."""
        return min(self.num_classes, _MOST_BREADTH)

    def _search_parameters(self, faiss: Any, selector: Any) -> Any:
        return faiss.SearchParametersHNSW(sel=selector, efSearch=self.breadth)


class IVFIndex(FaissIndex):
    """Classes in lists around centres; a query goes through the lists of the nearest centres.

    The centres come from k-means on the sphere (Sivic & Zisserman 2003; Jégou et al. 2011); without
    ``lists`` there are 4·sqrt(V), and at least 16 classes in each. A search takes about lists +
    probes·V/lists inner products. Building takes V·lists, half a minute for a million classes, and
    V·(D·4 + 8) bytes beside the copy of the vectors. The lists are the same each time: Faiss draws
    from a seed of its own. If the vectors have no clusters at all, most lists are searched.

    >>> import torch
    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(2000, 8))
    >>> index, hidden = IVFIndex(head, lists=20, probes=20), torch.randn(4, 8)
    >>> bool((index.search(hidden, 5).scores - head.topk(hidden, 5).scores).abs().max() < 1e-5)
    True
    """

    kind = "ivf"

    def __init__(self, head: ScorerHead, *, lists: int | None = None, probes: int = 8) -> None:
        if lists is None:
            lists = max(1, min(round(4 * math.sqrt(head.num_classes)), head.num_classes // 16))
        check_whole("lists", lists, 1, head.num_classes)
        check_whole("probes", probes, 1, _MOST_BREADTH)
        faiss = import_extra("faiss")
        super().__init__(head)
        points = classes_on_sphere(self.rows)
        quantizer = faiss.IndexFlatIP(points.shape[1])
        self._faiss_index = self._lists_of(faiss, quantizer, points.shape[1], lists)
        # Centres need not be exact: a few points for each, and few rounds, find as good lists.
        training = self._faiss_index.cp
        training.niter, training.min_points_per_centroid = 10, 1
        training.max_points_per_centroid = 64
        self._faiss_index.train(points)
        self._faiss_index.add(points)
        self.breadth = min(probes, lists)

    @property
    def breadth(self) -> int:
        """How many lists a query goes through."""
        return int(self._faiss_index.nprobe)

    @breadth.setter
    def breadth(self, breadth: int) -> None:
        self._faiss_index.nprobe = check_whole("breadth", breadth, 1, self.largest_breadth)

    @staticmethod
    def _lists_of(faiss: Any, quantizer: Any, width: int, lists: int) -> Any:
        return faiss.IndexIVFFlat(quantizer, width, lists, faiss.METRIC_INNER_PRODUCT)

    @property
    def largest_breadth(self) -> int:
        """All lists."""
        return int(self._faiss_index.nlist)

    def _search_parameters(self, faiss: Any, selector: Any) -> Any:
        return faiss.SearchParametersIVF(sel=selector, nprobe=self.breadth)


class IVF8Index(IVFIndex):
    """``IVFIndex`` with a byte a coordinate: a quarter of the memory.

    Of its own scores it takes four times as many classes as are wanted, and ranks those by the
    vectors. Beside the copy of the vectors it takes V·(D + 8) bytes.

    >>> import torch
    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(2000, 8))
    >>> index, hidden = IVF8Index(head, lists=20, probes=20), torch.randn(4, 8)
    >>> bool((index.search(hidden, 5).scores - head.topk(hidden, 5).scores).abs().max() < 1e-5)
    True
    """

    kind = "ivf8"
    _spare = 4

    @staticmethod
    def _lists_of(faiss: Any, quantizer: Any, width: int, lists: int) -> Any:
        byte = faiss.ScalarQuantizer.QT_8bit
        return faiss.IndexIVFScalarQuantizer(
            quantizer, width, lists, byte, faiss.METRIC_INNER_PRODUCT
        )
