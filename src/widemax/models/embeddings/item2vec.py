"""Item2Vec: skip-gram on sessions or baskets."""

from __future__ import annotations

import torch

from widemax.data import Sequences, sessions_of
from widemax.declarations import Setup, declare
from widemax.declarations.shared import UNORDERED
from widemax.models.embeddings.word2vec import SkipGram
from widemax.models.options import DIMENSION, HISTORY_BY_TEST, SESSION_GAP, SUBSAMPLE, WINDOW


@declare.model(
    "item2vec",
    options=[DIMENSION, WINDOW, SUBSAMPLE, SESSION_GAP, HISTORY_BY_TEST],
    traits=["gradients", "kernel", "windows"],
    usual={
        "trainer": "kernel",
        "dimension": 64,
        "sampler": "unigram",
        "objective": "negative-sampling",
        # A batch is many windows: each pair has its own negatives.
        "per_example": True,
        "unique": False,
        "num_samples": 5,
        "distortion": 0.25,
        "epochs": 20,
        "window": 20,
        "metric": "ndcg@20",
        "max_history": "auto",
    },
    usual_with={UNORDERED: {"max_history": 1000}},
)
class Item2Vec(SkipGram):
    """Vectors of items from the items that were chosen together with them.

    Formula: for all pairs (t, c) of a session within the window, −log σ(u(c)·o(t)) −
    Σ_n log σ(−u(c)·o(n)), n drawn by count^distortion. A history scores y by the mean of
    u(i)·o(y) over its items.

    Reference: Barkan & Koenigstein, "Item2Vec: Neural Item Embedding for Collaborative Filtering",
    2016; Caselles-Dupré, Lesaint & Royo-Letelier 2018 (on distortion, window and epochs).

    Use when: finding items that go together, from sessions or baskets alone. Avoid when: the order
    of the last few matters, or items have features (``EGES``).

    Scores learn log(P/Q): negatives drawn by count (distortion 1) take the popularity of items out
    of them, negatives drawn uniformly (distortion 0) leave it in. To recommend, some of it is
    wanted; how *alike* items are is the cosine of ``key_vectors``, which are the vectors u.

    A basket has no order: a run shuffles it, so that any two items may be within the window. With
    ``train_word2vec`` take a window well beyond the longest basket, or a narrow one on baskets that
    are shuffled anew for each epoch (``shuffled_baskets``), which draws as many pairs at random.

    >>> import widemax as wm
    >>> baskets = wm.Sequences.from_lists([[0, 1, 2], [3, 4, 5]] * 200)
    >>> model = Item2Vec.create(torch.full((6,), 200), dimension=8)
    >>> wm.models.train_word2vec(model, baskets, window=10, epochs=20, threads=1)
    >>> asked = wm.data.WindowBatch(context=torch.tensor([[4, 5]]), targets=torch.tensor([-1]))
    >>> model.topk(asked, 1, exclude=asked.context).ids.tolist()
    [[3]]
    """

    starts_small = True

    def training_sequences(self, setup: Setup, sequences: Sequences) -> Sequences:
        """Return the sessions of the users: their histories, cut where nothing came for long.

        Where the items of a user have no order, they are shuffled.
        """
        gap = setup.options.session_gap
        if gap:
            return sessions_of(sequences, gap=gap)[0]
        # Where goals are known, they are those of the items in their places.
        if setup.ordered or setup.goals is not None:
            return sequences
        return shuffled_baskets(sequences, generator=torch.Generator().manual_seed(setup.seed))


def shuffled_baskets(baskets: Sequences, *, generator: torch.Generator | None = None) -> Sequences:
    """Return baskets with the items of each in a uniformly random order, without their times.

    Barkan & Koenigstein 2016 shuffle instead of taking a window as wide as the largest basket.

    >>> baskets = Sequences.from_lists([[0, 1, 2], [3, 4]])
    >>> shuffled_baskets(baskets, generator=torch.Generator().manual_seed(3)).values.tolist()
    [1, 0, 2, 3, 4]
    """
    owner = torch.repeat_interleave(baskets.lengths)
    drawn = torch.randperm(len(baskets.values), generator=generator)
    order = drawn[owner[drawn].argsort(stable=True)]
    return Sequences(baskets.values[order], baskets.offsets, baskets.names)
