"""EGES: skip-gram on walks through the graph of sessions, with side information of the items."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from widemax.candidates import TopK
from widemax.data import ItemGraph, Sequences, WindowBatch, sessions_of
from widemax.declarations import Option, Setup, declare
from widemax.declarations.shared import ITEM_FEATURES
from widemax.encoders.side_information import SideInformationEncoder
from widemax.heads.exact.linear import linear_topk
from widemax.models.base import Model
from widemax.models.embeddings.word2vec import SkipGram, nothing_to_learn, one_neighbour
from widemax.models.options import DIMENSION, MAX_HISTORY, NEIGHBOURS, SESSION_GAP, WINDOW
from widemax.scoring import ShardedTableScorer, TableScorer
from widemax.validation import check_exclude, check_ids, check_whole


@declare.model(
    "eges",
    options=[
        DIMENSION,
        WINDOW,
        SESSION_GAP,
        MAX_HISTORY,
        ITEM_FEATURES,
        Option(
            "walks",
            10,
            "Random walks that start from each item.",
            least=1,
            most=10_000,
            group="Data",
        ),
        Option("walk_length", 10, "Items in each walk.", least=2, most=10_000, group="Data"),
    ],
    traits=["gradients", "new-items"],
    usual={
        **NEIGHBOURS,
        "window": 3,
        "walks": 20,
        "epochs": 6,
        "learning_rate": 0.2,
        "max_history": 5,
    },
)
class EGES(Model):
    """Vectors of items from their neighbours in a graph and from what is known of them.

    Formula: for item t of a walk and every neighbour c within the window, −log P(t | v(c)), v the
    vector of ``SideInformationEncoder``: Σ_s softmax(a_c)_s · W_s[c]. A history scores y by the
    mean of cos(v(i), v(y)) over its items: a new item has no output vector, but it has a v.

    Reference: Wang et al., "Billion-scale Commodity Embedding for E-commerce Recommendation in
    Alibaba", 2018.

    Use when: many items are rare or new: one that no session has seen gets a vector from its
    fields alone. Avoid when: nothing is known of the items but who chose them (``Item2Vec``).

    Items of count 0 are such new ones, their id left out; ``vectors_of`` gives vectors to items
    that are not in the catalogue yet. Trained with gradients, on ``ItemGraph.walks``; one loss for
    each pair.

    >>> import polars as pl
    >>> from widemax.data import FeatureTable
    >>> films = pl.DataFrame({"id": range(3), "genre": ["War", "Opera", "War"]})
    >>> table = FeatureTable.fit(films, [0, 1, 2], key_column="id")
    >>> model = EGES.create([5, 5, 0], item_features=table, dimension=4)
    >>> torch.equal(model.key_vectors()[2], model.vectors_of(table.codes[2:])[0])
    True
    >>> from widemax.data import Sequences
    >>> walks = Sequences.from_lists([[0, 1, 0]])
    >>> windows = model.windows(walks, max_history=1, window=1)
    >>> losses = model(windows.batch(torch.arange(3)), generator=torch.Generator().manual_seed(0))
    >>> losses.shape, round(losses[0].item(), 4)  # 11 scores of 0: log 2 each
    (torch.Size([4]), 7.6246)
    """

    encoder: SideInformationEncoder
    targets_follow_counts = False

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run; without features, items have one unknown field."""
        codes, num_values = setup.side_information()
        if codes is None:
            codes, num_values = torch.zeros(setup.num_classes, 1, dtype=torch.int64), [1]
        dimension = setup.options.dimension
        # Near 0, as in ``Item2Vec``; items without a count stand by their fields.
        encoder = SideInformationEncoder(codes, num_values, dimension, seen=setup.counts > 0)
        for table in (encoder.weight, encoder.side_weight):
            nn.init.uniform_(table, -1 / dimension, 1 / dimension)
        head = setup.head(dimension)
        scorer = getattr(head, "scorer", None)
        if isinstance(scorer, TableScorer | ShardedTableScorer):
            for parameter in scorer.parameters():
                nn.init.zeros_(parameter)
        return cls(encoder, head)

    def training_sequences(self, setup: Setup, sequences: Sequences) -> Sequences:
        """Return walks on the graph of what follows what within a session."""
        options = setup.options
        if options.session_gap:
            sequences = sessions_of(sequences, gap=options.session_gap)[0]
        graph = ItemGraph.from_sequences(sequences, num_items=setup.num_classes)
        seeded = torch.Generator().manual_seed(options.seed)
        return graph.walks(options.walks, options.walk_length, generator=seeded)

    windows = staticmethod(SkipGram.windows)

    def encode(self, context: Tensor) -> Tensor:
        """Return the mean of the unit vectors of each context, [B, D]."""
        context = check_ids("context", context, self.head.num_classes, absent=True)
        known = context >= 0
        unit = normalize(self.item_vectors(context[known]), dim=-1)
        sums = unit.new_zeros(len(context), unit.shape[1])
        sums = sums.index_add(0, known.nonzero()[:, 0], unit)
        return sums / known.sum(-1, keepdim=True).clamp(min=1)

    def scores(self, batch: WindowBatch) -> Tensor:
        """Return the mean cosine of every item and those of the history, [B, V]."""
        return self.hidden(batch) @ normalize(self.key_vectors(), dim=-1).T

    def log_prob(self, batch: WindowBatch) -> Tensor:
        """Return the softmax of these scores, [B, V]: to compare by, not what was learned."""
        self.check_numbering(batch)
        return self.scores(batch).log_softmax(-1)

    @torch.no_grad()
    def topk(self, batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k items that are most like each history, leaving out ``exclude`` [B, E]."""
        self.check_numbering(batch)
        k = check_whole("k", k, 1, self.head.num_classes)
        if exclude is not None:
            exclude = check_exclude(exclude, len(batch.context), self.head.num_classes)
        unit = normalize(self.key_vectors(), dim=-1)
        return linear_topk(self.hidden(batch), unit, None, k, exclude=exclude)

    def item_vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors of some items [N], [N, D]."""
        # Each item once: a batch of pairs holds the same few again and again.
        distinct, place = torch.unique(ids, return_inverse=True)
        vectors: Tensor = self.encoder(distinct)
        return vectors[place]

    def key_vectors(self) -> Tensor:
        """Return the vectors of all items, [V, D]; of those never seen, from their fields."""
        vectors: Tensor = self.encoder(
            torch.arange(self.encoder.num_classes, device=self.encoder.weight.device)
        )
        return vectors

    def vectors_of(self, side: Tensor) -> Tensor:
        """Return the vectors [N, D] of new items, from their fields [N, S] alone."""
        return self.encoder.vectors_of(side)

    def trained_on(self, batch: WindowBatch, generator: torch.Generator | None) -> Tensor:
        """Return the vector of one item around each target, [B, D]."""
        return self.item_vectors(one_neighbour(batch.context, generator)[:, 0].clamp(min=0))

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each pair of the windows."""
        there = batch.context >= 0
        if not bool(there.any()):
            return nothing_to_learn()
        targets = batch.targets[:, None].expand_as(there)[there]
        hidden = self.item_vectors(batch.context[there])
        losses: Tensor = self.head(hidden, targets, generator=generator)
        return losses
