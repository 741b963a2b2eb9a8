"""What every model is: examples cut from sequences, encoded, and given to a head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from widemax.candidates import TopK, merge_topk
from widemax.config import Config
from widemax.data import FeatureTable, Sequences, WindowBatch, Windows
from widemax.data.summary import DataSummary
from widemax.declarations import Setup, Value
from widemax.declarations.table import declaration_of
from widemax.distributed.heads import SlicedEvaluation
from widemax.distributed.tables import SlicedBagEncoder, SlicedTableScorer
from widemax.encoders.bag import BagEncoder
from widemax.encoders.dense import DenseEncoder
from widemax.heads import Head, ScorerHead
from widemax.scoring import TableScorer
from widemax.validation import ABSENT, Counts
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Keys

_MAX_HISTORY = 50


@runtime_checkable
class ReadsContext(Protocol):
    """A sampler whose proposal depends on the classes before the target."""

    order: int

    def set_context(self, context: Tensor | None) -> None:
        """Say what came before each row of the next batch, [B, order − 1]."""


class Model(nn.Module, ABC):
    """An encoder and a head, trained together on windows of sequences.

    Formula: losses = head(hidden(batch), targets); a class scores head.scores(hidden(batch)), and
    where a model has several hidden states for one example, the best of theirs.

    Contexts are [B, H], padded with -1; targets [B]; losses [B]; hidden states [B, D], or
    [B, K, D] of a model with K interests.

    Use when: writing a model that ``widemax train`` can train. Avoid when: you have a training
    loop of your own (use the head in it).
    """

    encoder: nn.Module | None
    """None in a model that is counted or solved: its head is asked by contexts."""
    head: Head
    vocabulary: Vocabulary | None = None
    """By which the classes are numbered, where it is known, as it is of a run."""
    causal = False
    """Whether a class is predicted only from those before it, so that text can be generated."""
    targets_follow_counts = True
    """Whether classes are targets as often as they were counted: no walks, pairs or thinning."""

    trains_by_head = True
    """Whether the losses of ``head`` over its classes are what the model is trained by."""
    asks_head_once = True
    """Whether every batch asks the head once, so that processes can put their batches together."""

    @property
    def never_recommended(self) -> Tensor | None:
        """Classes that are read and are no answer, bool [V]; None: there are none."""
        return None

    def __init__(self, encoder: nn.Module | None, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    @classmethod
    def create(
        cls,
        counts: Counts,
        *,
        keys: Keys | None = None,
        item_features: FeatureTable | None = None,
        user_features: FeatureTable | None = None,
        days: float = 0.0,
        corpus: Sequences | None = None,
        **settings: Value,
    ) -> Self:
        """Return an untrained model for classes of these ``counts`` [V], as ``Config`` says.

        ``settings`` are those of ``Config``; what is not given is as usual for the model. ``days``
        is how long the log was, for models that read ages; ``keys`` [V] and ``corpus`` are for
        scorers that read names and samplers that count. Parameters are drawn from torch's own
        generator.

        >>> from widemax.models import SkipGram
        >>> model = SkipGram.create([9, 5, 1], dimension=8)
        >>> model.head.num_samples, model.head.scorer.weight.shape
        (5, torch.Size([3, 8]))
        >>> type(SkipGram.create([9, 5, 1], head="hierarchical").head).__name__
        'HierarchicalHead'
        """
        # Not at the top: it imports all models, and they import this class.
        from widemax.models.building import build_model

        config = Config(source=None, model=declaration_of(cls).name, **settings)
        data = DataSummary.from_counts(
            counts, keys=keys, days=days, item_features=item_features, user_features=user_features
        )
        model = build_model(config, data, corpus, strict=True)
        assert isinstance(model, cls)
        return model

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return how many numbers the model of a run has at least, before it is built."""
        return int(setup.num_classes * setup.options.dimension)

    @staticmethod
    @abstractmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return the examples of sequences, or those at the given positions."""

    @classmethod
    def windows_of(cls, sequences: Sequences, options: Any) -> Windows:
        """Return the examples of sequences, as far as the settings of a run reach."""
        return cls.windows(
            sequences,
            max_history=options.get("max_history", _MAX_HISTORY),
            window=options.get("window", 1),
        )

    def examples(self, setup: Setup, sequences: Sequences) -> Any:
        """Return what a run trains the model on with gradients: by default its windows."""
        return self.windows_of(sequences, setup.options)

    def training_sequences(self, setup: Setup, sequences: Sequences) -> Sequences:
        """Return the sequences that examples are cut from: by default as they are."""
        return sequences

    def encode(self, context: Tensor) -> Tensor:
        """Return the hidden states of contexts [B, H] of users who are not known."""
        hidden: Tensor = context if self.encoder is None else self.encoder(context)
        return hidden

    def hidden(self, batch: WindowBatch) -> Tensor:
        """Return the hidden states of examples, [B, D] or [B, K, D], ignoring their targets.

        A model that knows its users also reads ``batch.users`` and ``batch.ages``.
        """
        return self.encode(batch.context)

    def trained_on(self, batch: WindowBatch, generator: torch.Generator | None) -> Tensor:
        """Return the hidden states that the head is trained on, [B, D], one for each example.

        Where examples are taken apart in training, such as into pairs of words, a part is drawn.
        """
        return self.hidden(batch)

    def reading(self, windows: Windows) -> Any:
        """Return the examples of a text, each with its hidden state, read once from the beginning.

        None: the model predicts a word from a window of its own.
        """
        return None

    def scores(self, batch: WindowBatch) -> Tensor:
        """Return the scores by which classes are ranked, [B, V]."""
        hidden = self.hidden(batch)
        if hidden.dim() == 2:
            scores = self.head.scores(hidden)
        else:  # one by one: [K, B, V] would be K times what the answer takes
            scores = reduce(torch.maximum, (self.head.scores(each) for each in hidden.unbind(1)))
        never = self.never_recommended
        return scores if never is None else scores.masked_fill(never, -torch.inf)

    def check_numbering(self, batch: WindowBatch) -> None:
        """Raise if the ids of a batch are known to stand for other keys than those of the model."""
        own, other = self.vocabulary, batch.vocabulary
        if own is None or other is None or own is other:
            return
        if own.numbering != other.numbering:
            raise ValueError(
                "the classes of the batch are numbered by another vocabulary than those of the "
                "model: read the data with that of the run (vocabulary=run.vocabulary)"
            )

    def log_prob(self, batch: WindowBatch) -> Tensor:
        """Return log P of all classes, normalised over the scores they are ranked by, [B, V]."""
        self.check_numbering(batch)
        hidden = self.hidden(batch)
        if hidden.dim() == 2:
            return self.head.log_prob(hidden)
        return self.scores(batch).log_softmax(-1)

    def topk(self, batch: WindowBatch, k: int, *, exclude: Tensor | None = None) -> TopK:
        """Return the k best classes of each example, leaving out ``exclude`` [B, E]."""
        self.check_numbering(batch)
        hidden = self.hidden(batch)
        if self.never_recommended is not None:
            never = self.never_recommended.nonzero()[:, 0].expand(len(hidden), -1)
            exclude = never if exclude is None else torch.cat([exclude, never], dim=1)
        if hidden.dim() == 2:
            return self.head.topk(hidden, k, exclude=exclude)
        found = [self.head.topk(each, k, exclude=exclude) for each in hidden.unbind(1)]
        return merge_topk(found, k)

    def dense_encoder(self) -> DenseEncoder:
        """Return what computes ``hidden`` by dense operations alone, to be traced by an export."""
        if not isinstance(self.encoder, DenseEncoder):
            raise ValueError(f"{type(self).__name__} has no dense encoder to export")
        return self.encoder

    def key_vectors(self) -> Tensor | None:
        """Return the vectors that stand for the classes, [V, D]; None: those of the head."""
        return None

    def input_table(self) -> Tensor | None:
        """Return the vectors of the classes as they are read, [V, D]; None: there is no such table.

        ``key_vectors`` are those by which they are known.
        """
        table: Tensor | None = getattr(self.encoder, "weight", None)
        return table

    @torch.no_grad()
    def vectors_name(self) -> str:
        """Return which tensor of the state has the vectors of the classes, up to their lengths.

        Empty if none has: they are computed, or the model counts.
        """
        own = self.key_vectors()
        if own is None:
            # Trees and clusters have no class vectors: those of the classes as input stand in.
            scorer = getattr(self.head, "scorer", None)
            if scorer is None:
                own = self.input_table()
            elif isinstance(scorer, TableScorer):
                own = scorer.weight
        if own is None:
            return ""
        return self._name_of(own)

    def averaged_table(self) -> Tensor | None:
        """Return the table [V, D] whose rows' mean over a context is its hidden state.

        None: the hidden state is computed in another way.
        """
        plain = (type(self).hidden, type(self).encode) == (Model.hidden, Model.encode)
        if not plain or self.causal or type(self.encoder) not in (BagEncoder, SlicedBagEncoder):
            return None
        assert isinstance(self.encoder, BagEncoder)
        return self.encoder.weight

    def table_answers(self) -> dict[str, str | float]:
        """Return how tensors of the state alone rank what follows a history; empty: nothing does.

        ``widemax.runs.answering.table_answers`` has the rules: "rule" names one, "table.x" the
        tensor that it calls x, all else is what it needs besides.
        """
        head, inputs = self.head, self.averaged_table()
        scorer = getattr(head, "scorer", None)
        # Divided over processes or not, what is stored is whole.
        if inputs is None or type(scorer) not in (TableScorer, SlicedTableScorer):
            return {}
        ranked = type(head).topk in (ScorerHead.topk, SlicedEvaluation.topk)
        if type(self).topk != Model.topk or not ranked or self.never_recommended is not None:
            return {}
        assert isinstance(scorer, TableScorer)
        recipe: dict[str, str | float] = {
            "rule": "mean",
            "table.inputs": self._name_of(inputs),
            "table.classes": self._name_of(scorer.weight),
            "similarity": scorer.similarity,
            "temperature": scorer.temperature,
        }
        return recipe | (
            {} if scorer.bias is None else {"table.biases": self._name_of(scorer.bias)}
        )

    def _name_of(self, own: Tensor) -> str:
        """Return what a tensor is called in the state; empty if it is none of it."""
        for name, tensor in self.state_dict().items():
            if tensor.data_ptr() == own.data_ptr() and tensor.shape == own.shape:
                return name
        return ""

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each example, [B]."""
        return self.losses(self.hidden(batch), batch.targets, batch.context, generator)

    def losses(
        self,
        hidden: Tensor,
        targets: Tensor,
        context: Tensor,
        generator: torch.Generator | None,
        **own: Tensor,
    ) -> Tensor:
        """Return the head's losses [B]; a proposal that reads contexts [B, H] gets them first.

        ``own`` is what only a sampled head takes: ``query_ids``, ``history``.
        """
        self.tell_context(context)
        losses: Tensor = self.head(hidden, targets, generator=generator, **own)
        return losses

    def tell_context(self, context: Tensor) -> None:
        """Give the contexts [B, H] of the next losses to a proposal that depends on them."""
        sampler = self.head.proposal
        # By name first: to ask for a protocol takes as long as a short kernel.
        if hasattr(type(sampler), "set_context") and isinstance(sampler, ReadsContext):
            sampler.set_context(last_ids(context, sampler.order - 1))


def last_ids(context: Tensor, count: int) -> Tensor:
    """Return the last ids of contexts [B, H], [B, count], padded with -1 before them.

    >>> last_ids(torch.tensor([[4, 7]]), 3).tolist()
    [[-1, 4, 7]]
    """
    missing = max(0, count - context.shape[1])
    return pad(context, (missing, 0), value=ABSENT)[:, missing + context.shape[1] - count :]
