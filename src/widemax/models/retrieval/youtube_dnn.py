"""YouTube's candidate generation: the item that a user takes, out of all there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from widemax.data import Sequences, WindowBatch, Windows
from widemax.data.reading.searches import are_words
from widemax.declarations import Option, Setup, Value, declare
from widemax.declarations.shared import FEATURE_DIMENSION, UNORDERED
from widemax.encoders.youtube_dnn import YouTubeDNNEncoder
from widemax.heads import SampledHead
from widemax.models.options import (
    DIMENSION,
    DROPOUT,
    HISTORY_BY_TEST,
    LAST_ITEMS,
    TIED_BY_TEST,
    USER_FEATURES,
    WEIGHTS,
)
from widemax.models.retrieval.bags import BagBatch, Bags
from widemax.models.retrieval.history import HistoryModel
from widemax.scoring.base import LAYER_SIZE, NUM_LAYERS
from widemax.validation import ABSENT

PAPER_TOWER = (1024, 512, 256)
"""Units of the layers in Covington et al. 2016, each half as wide as the one below it."""

WITHOUT_ORDER: dict[str, Value] = {
    "dimension": 128,
    "max_history": 1000,
    "targets_per_row": 8,
    "history_dropout": 0.3,
    "num_samples": 4000,
    "batch_size": 700,
    "learning_rate": 0.005,
    "schedule": "linear",
    "epochs": 30,
    # By all rows it learns faster and comes to the same; a rate that falls to 0 settles the weights
    # as their mean would.
    "optimizer": "adam",
    "averaging": 0.0,
}
"""What sets of items are usually trained with, besides what is usual where they have an order."""


@declare.model(
    "youtube-dnn",
    options=[
        DIMENSION,
        replace(NUM_LAYERS, unless="paper_tower"),
        LAYER_SIZE,
        DROPOUT,
        HISTORY_BY_TEST,
        USER_FEATURES,
        *WEIGHTS,
        TIED_BY_TEST,
        FEATURE_DIMENSION,
        Option(
            "paper_tower",
            False,
            "Whether the network is that of the paper: ReLU layers of 1,024, 512 and 256 units.",
        ),
        Option(
            "example_age",
            "auto",
            "Whether the model reads the age of each example, which is 0 when serving; auto does "
            "where the log has times.",
            choices=("auto", "on", "off"),
        ),
        Option(
            "history_dropout",
            0.0,
            "Share of the items of a history that is left out in training, others each time.",
            most=0.99,
        ),
        Option(
            "targets_per_row",
            1,
            "Where a log has no order: targets of one user that are predicted in one row, which "
            "costs as much as one.",
            least=1,
            most=2**10,
            unless="max_examples",
            group="Data",
        ),
        Option(
            "own_negatives",
            "auto",
            "Whether what is read of a history (--max-history) may be a negative of its user; auto "
            "leaves it out of a sampled head's draws, unless most of what users choose is what "
            "they had.",
            choices=("auto", "drawn", "left-out"),
        ),
        Option(
            "search_column",
            "",
            "Column of what the user typed before each choice, whose words the model reads beside "
            "the items; empty: there is none.",
            group="Data",
        ),
        Option(
            "max_examples",
            0,
            "Most examples of one user, drawn at random, so that busy users do not outweigh the "
            "others; 0 takes all.",
            most=2**31,
            group="Data",
        ),
    ],
    traits=["gradients", "context", "windows"],
    usual={**LAST_ITEMS, "example_age": "off", "tied": "auto"},
    usual_with={UNORDERED: WITHOUT_ORDER},
)
class YouTubeDNN(HistoryModel):
    """The next item of a user from what they watched, who they are, and the age of the example.

    Formula: P(y | context, user, age) by the head of ``YouTubeDNNEncoder``'s user vector. No ages,
    as in ``encode``, are ages of 0: now.

    Reference: Covington, Adams & Sargin 2016. Without layers and with one table for history and
    target (the defaults), this is the mean of a user's items times an item, which is hard to beat
    where only a log without order is known. ``paper_tower``, ``max_examples`` (users weigh alike)
    and the age of examples are as there.

    Use when: recommending from a log of interactions, with features of users or without. Avoid
    when: the order of the last items matters most (``SDM``).

    >>> _ = torch.manual_seed(0)
    >>> model = YouTubeDNN.create(torch.arange(100, 0, -1), dimension=8, num_samples=20)
    >>> windows = model.windows(Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> model(windows.batch(torch.arange(2)), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2])
    >>> model.head.scorer.weight is model.encoder.items.weight
    True
    """

    encoder: YouTubeDNNEncoder
    history_dropout: float = 0.0
    """Share of a history that is left out in training."""
    leaves_own_out: bool = False
    """Whether what is read of a history is no negative of its user; earlier items may be."""

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        if options.example_age == "on" and not setup.days:
            raise ValueError("example_age = 'on' needs times, and the log has none")
        aged = options.example_age != "off" and setup.days > 0
        even = (options.hidden_size,) * options.num_layers
        encoder = YouTubeDNNEncoder(
            setup.num_classes,
            options.dimension,
            PAPER_TOWER if options.paper_tower else even,
            user_features=setup.user_encoder(),
            oldest_age=setup.days if aged else None,
            words=_words_of(setup),
            dropout=options.dropout,
        )
        items = encoder.items if options.tied else None
        model = cls(encoder, setup.head(options.dimension, items=items))
        model.history_dropout = options.history_dropout
        model.leaves_own_out = model._leaves_own_out(setup)
        return model

    def _leaves_own_out(self, setup: Setup) -> bool:
        """Return whether draws leave out what is read, or raise where nothing is drawn."""
        asked = setup.options.own_negatives
        if not isinstance(self.head, SampledHead):
            if asked != "auto":
                raise ValueError(f"own_negatives = {asked!r} needs head = 'sampled'")
            return False
        # A trained run that is loaded has no corpus, and draws nothing.
        mostly = setup.corpus is not None and is_mostly_repeated(setup.corpus)
        return asked == "left-out" or (asked == "auto" and not mostly)

    def examples(self, setup: Setup, sequences: Sequences) -> Windows | Bags:
        """Return each item with those before it; where a log has no order, with all others."""
        options = setup.options
        if options.targets_per_row > 1 and not options.max_examples:
            if setup.ordered:
                raise ValueError(
                    "targets_per_row is for a log without an order: item_order = ignored"
                )
            return Bags(
                sequences,
                targets_per_row=options.targets_per_row,
                max_history=options.max_history,
            )
        if self.encoder.words is not None:
            chosen = ~self.encoder.words[sequences.values]
            windows = self.windows(
                sequences,
                max_history=options.max_history,
                window=1,
                positions=chosen.nonzero()[:, 0],
            )
        elif setup.ordered:
            windows = self.windows_of(sequences, options)
        else:
            windows = self.windows_without_order(sequences, max_history=options.max_history)
        if not options.max_examples:
            return windows
        generator = torch.Generator().manual_seed(setup.seed)
        return windows.at_most(options.max_examples, generator=generator)

    @staticmethod
    def windows_without_order(
        sequences: Sequences, *, max_history: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each item with all others of its sequence within ``max_history`` places.

        >>> import torch
        >>> log = Sequences.from_lists([[4, 0, 2]])
        >>> windows = YouTubeDNN.windows_without_order(log, max_history=2)
        >>> windows.batch(torch.arange(3)).context.tolist()
        [[-1, -1, 0, 2], [-1, 4, 2, -1], [4, 0, -1, -1]]
        """
        return Windows(
            sequences,
            before=max_history,
            after=max_history,
            positions=positions,
            require_context=True,
        )

    @property
    def never_recommended(self) -> Tensor | None:
        """The words of searches, bool [V]; None where no searches are read."""
        return self.encoder.words

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the user vectors, [B, D]."""
        hidden: Tensor = self.encoder(batch.context, batch.users, batch.ages)
        return hidden

    def input_table(self) -> Tensor:
        """Return the vectors of the items that a user's vector is made of, [V, D]."""
        return self.encoder.items.weight

    def averaged_table(self) -> Tensor | None:
        """Return the table of the items where nothing but their mean is a user's vector."""
        plain = type(self) is YouTubeDNN and type(self.encoder) is YouTubeDNNEncoder
        return self.input_table() if plain and self.encoder.only_mean else None

    def forward(
        self, batch: WindowBatch | BagBatch, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the training loss of each target, [B]."""
        if isinstance(batch, BagBatch):
            bags = self._left(batch.bags, generator)
            hidden = self.encoder.of_others(bags, batch.targets, batch.owners, batch.users)
            self.tell_context(bags[batch.owners, -1:])
            # What a user chose besides is no negative of theirs, where a batch holds several.
            apart = isinstance(self.head, SampledHead) and self.head.sampler.from_batch
            own = {"query_ids": batch.users} if apart else {}
            if self.leaves_own_out:
                own["history"] = batch.bags[batch.owners]
            losses: Tensor = self.head(hidden, batch.targets, generator=generator, **own)
            return losses
        shown = replace(batch, context=self._left(batch.context, generator))
        own = {"history": batch.context} if self.leaves_own_out else {}
        return self.losses(self.hidden(shown), batch.targets, batch.context, generator, **own)

    def _left(self, context: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the items that are shown in training, the others as absent."""
        if not self.history_dropout or not self.training:
            return context
        drawn = torch.rand(context.shape, generator=generator, device=context.device)
        return context.masked_fill(drawn < self.history_dropout, ABSENT)


def is_mostly_repeated(sequences: Sequences) -> bool:
    """Return whether most of what is chosen was chosen by the same user before.

    >>> is_mostly_repeated(Sequences.from_lists([[4, 4, 4], [1, 2]]))
    False
    >>> is_mostly_repeated(Sequences.from_lists([[4, 4, 4, 4], [1]]))
    True
    """
    values = sequences.values
    if not len(values):
        return False
    owners = torch.arange(len(sequences)).repeat_interleave(sequences.lengths)
    distinct = len(torch.unique(owners * (int(values.max()) + 1) + values))
    return 2 * distinct < len(values)


def _words_of(setup: Setup) -> Tensor | None:
    """Return which classes are words of searches, bool [V]; None where no searches are read."""
    if not setup.options.search_column:
        return None
    if not setup.ordered:
        raise ValueError("search_column needs a log in the order of time, what was typed first")
    words = torch.from_numpy(are_words(setup.vocabulary.keys).to_numpy().copy())
    if not bool(words.any()):
        raise ValueError(f"search_column = {setup.options.search_column!r} holds no words")
    return words
