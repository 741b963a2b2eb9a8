"""The next item by self-attention over those before it."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from widemax.data import Sequences, WindowBatch
from widemax.declarations import Option, Setup, declare
from widemax.encoders.blocks import BLOCKS
from widemax.encoders.sasrec import SASRecEncoder
from widemax.models.options import (
    COSINE,
    DIMENSION,
    DROPOUT,
    MAX_HISTORY,
    NUM_ATTENTION_HEADS,
    RETRIEVAL,
    TIED,
    WEIGHTS,
)
from widemax.models.retrieval.history import HistoryModel
from widemax.models.segments import SegmentBatch, Segments, sequence_starts, without_start


@declare.model(
    "sasrec",
    options=[
        DIMENSION,
        NUM_ATTENTION_HEADS,
        DROPOUT,
        MAX_HISTORY,
        TIED,
        *WEIGHTS,
        Option("num_blocks", 2, "Blocks of self-attention.", least=1, most=64),
        Option(
            "block",
            "sasrec",
            "What a block is: sasrec (two layers after attention), or ligr (gates on both halves, "
            "and a gated unit after attention).",
            choices=tuple(BLOCKS),
        ),
        Option(
            "expansion",
            1,
            "How many times wider than its vectors a block is inside.",
            least=1,
            most=64,
        ),
        Option(
            "dropout_targets",
            0,
            "Targets in the data up to which dropout falls as it is set; the more there are, the "
            "less, in proportion; 0 is always as it is set.",
            most=10**12,
            only_with="dropout",
        ),
        Option(
            "item_scale",
            1.0,
            "What the vectors of the items read are multiplied by before positions are added.",
            least=0.001,
            most=1000.0,
        ),
        Option(
            "positions",
            "first",
            "From which of the items read positions are counted.",
            choices=("first", "last"),
        ),
    ],
    traits=["gradients"],
    usual={
        **RETRIEVAL,
        **COSINE,
        "temperature": 0.08,
        # Vectors start and stay short: without it, positions and blocks drown out which item it is.
        "item_scale": 20.0,
        "block": "ligr",
        "expansion": 2,
        "num_attention_heads": 2,
        "dropout": 0.4,
        # 300,000 targets are learned by heart without it; a million are not.
        "dropout_targets": 300_000,
        "max_history": 200,
        "num_samples": 4096,
        "metric": "ndcg@10",
        "batch_size": 1024,
        # The same number of steps for all data: few passes over many users, many over few.
        "steps": 10_000,
        "patience": 10,
        "optimizer": "auto",
        "learning_rate": 0.002,
        "schedule": "linear",
        "averaging": 0.998,
    },
    # Each negative is a yes or no of its own: they are drawn alike, biases hold what is common, and
    # scores are as large as they have to be.
    usual_with={
        "gbce": {
            "sampler": "uniform",
            "num_samples": 256,
            "num_groups": 8,
            "similarity": "dot",
            "temperature": 1.0,
        }
    },
)
class SASRec(HistoryModel):
    """An item from the state of a self-attention network that has read the items before it.

    Formula: P(i_t | i_1 … i_{t−1}) by the head of ``SASRecEncoder``'s state after i_{t−1}. A batch
    of ``Segments`` gives one loss for each target that follows an item, [N], segment after segment:
    one pass predicts all its items.

    Reference: Kang & McAuley 2018; Klenitskiy & Vasilev 2023 (cross-entropy in place of one
    negative an item).

    Use when: the order of a user's items says something about the next. Train on ``segments``;
    ``windows`` measure and serve it. Avoid when: items are a set (``EASE``).

    >>> _ = torch.manual_seed(0)
    >>> model = SASRec.create(torch.arange(1000, 0, -1), dimension=8, max_history=4)
    >>> segments = model.segments(Sequences.from_lists([[5, 7, 9], [3], [8, 6]]), length=4)
    >>> model(segments.batch(torch.arange(len(segments)))).shape
    torch.Size([3])
    """

    causal = True
    encoder: SASRecEncoder

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        share = 1.0
        if options.dropout_targets:
            share = min(1.0, options.dropout_targets / max(1, int(setup.counts.sum())))
        encoder = SASRecEncoder(
            setup.num_classes,
            options.dimension,
            options.max_history,
            block=options.block,
            num_blocks=options.num_blocks,
            num_heads=options.num_attention_heads,
            expansion=options.expansion,
            from_end=options.positions == "last",
            item_scale=options.item_scale,
            dropout=share * options.dropout,
            sparse=setup.sparse,
        )
        items = encoder.items if options.tied else None
        return cls(encoder, setup.head(options.dimension, items=items))

    def examples(self, setup: Setup, sequences: Sequences) -> Segments:
        """Return stretches of a user's items: one pass predicts all of them."""
        return self.segments(sequences, length=setup.options.max_history)

    @staticmethod
    def segments(sequences: Sequences, *, length: int, overlap: int = 0) -> Segments:
        """Return stretches of ``length`` items: what to train on."""
        return Segments(sequences, length, overlap=overlap, predicts_first=False)

    def forward(
        self, batch: WindowBatch | SegmentBatch, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the training loss of each target that follows an item."""
        if isinstance(batch, WindowBatch):
            return super().forward(batch, generator=generator)
        starts = sequence_starts(batch.context)
        context, targets = (without_start(each, starts) for each in (batch.context, batch.targets))
        targets = targets[context >= 0]
        hidden = self.encoder.packed_states(context)
        counted = targets >= 0
        losses: Tensor = self.head(hidden[counted], targets[counted], generator=generator)
        return losses
