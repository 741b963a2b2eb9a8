"""An n-gram model with the interface of all models: counted, not trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor

from widemax.data import Sequences, Windows
from widemax.declarations import Option, Setup, declare
from widemax.models.base import Model
from widemax.models.context_head import ContextHead
from widemax.ngrams import NGramModel
from widemax.validation import check_ids, check_whole

Smoothing = Callable[..., NGramModel]
"""A way to fit, such as ``NGramModel.kneser_ney``."""

_PREFIX = "ngrams."


class NGramHead(ContextHead):
    """The probabilities of an n-gram model, asked by contexts instead of hidden states.

    Formula: log P(y | the ids of the context), see ``NGramModel``.

    Shapes: ``hidden`` is the context itself, int64 [B, H], -1 before the beginning.

    Cost: O(order · log G) a class, G the n-grams.

    Reference: see ``NGramModel``.

    Use when: an n-gram model should answer like any other. Avoid when: there is anything to train.

    >>> import torch
    >>> model = NGram(3, NGramModel.kneser_ney, order=2)
    >>> model.fit(Sequences.from_lists([[1, 2, 0], [1, 1, 2, 0]]))
    >>> model.head.log_prob(torch.tensor([[1]])).exp().sum().item()
    1.0
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.ngrams: NGramModel | None = None

    def log_prob(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return log P(y | context) of the given classes ([S] or [B, S]) or of all, [B, V]."""
        if ids is None:
            return self._fitted().log_probs(hidden)
        ids = check_ids("ids", ids, self.num_classes)
        ids = ids.expand(len(hidden), -1)
        rows = hidden.repeat_interleave(ids.shape[1], dim=0)
        return self._fitted().log_prob(rows, ids.reshape(-1)).view(ids.shape)

    def scores(self, hidden: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return what ``log_prob`` returns: there are no other scores."""
        return self.log_prob(hidden, ids)

    def _fitted(self) -> NGramModel:
        if self.ngrams is None:
            raise ValueError("the n-gram model has not been fitted yet")
        return self.ngrams


@declare.model(
    "n-gram",
    slots=["trainer"],
    options=[
        Option(
            "order",
            5,
            "Length of the longest n-grams that are counted, in words.",
            least=1,
            most=16,
        ),
        Option(
            "smoothing",
            "modified-kneser-ney",
            "How n-grams that were never seen get a probability.",
            choices=("kneser-ney", "maximum-likelihood", "modified-kneser-ney"),
        ),
    ],
    traits=["fitted"],
    usual={"trainer": "fit", "unknown": "<unk>", "end": "<eos>", "min_count": 2},
)
class NGram(Model):
    """An n-gram language model, fitted in one pass over the text.

    Formula: see ``NGramModel``.

    Reference: Kneser & Ney 1995; Chen & Goodman 1999.

    Use when: a run of ``widemax train`` should be an n-gram model, to compare others with. Avoid
    when: the probabilities are all you need in Python (``NGramModel``).

    >>> import torch
    >>> model = NGram(3, NGramModel.modified_kneser_ney, order=3)
    >>> model.fit(Sequences.from_lists([[1, 2, 0], [1, 1, 2, 0]]))
    >>> other = NGram(3, NGramModel.modified_kneser_ney, order=3)
    >>> _ = other.load_state_dict(model.state_dict())
    >>> context = torch.tensor([[1, 2]])
    >>> bool((other.head.log_prob(context) == model.head.log_prob(context)).all())
    True
    """

    causal = True
    head: NGramHead

    def __init__(self, num_classes: int, smoothing: Smoothing, *, order: int = 5) -> None:
        super().__init__(None, NGramHead(num_classes))
        self.smoothing, self.order = smoothing, check_whole("order", order, 1, 16)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the model of a run, before it has counted."""
        smoothing = getattr(NGramModel, setup.options.smoothing.replace("-", "_"))
        return cls(setup.num_classes, smoothing, order=setup.options.order)

    @staticmethod
    def min_parameter_count(setup: Setup) -> int:
        """Return 0: nothing is allocated before it counts."""
        return 0

    def fit(self, sequences: Sequences) -> None:
        """Count and smooth the n-grams of sentences."""
        self.head.ngrams = self.smoothing(sequences, self.head.num_classes, order=self.order)

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each word with as many words before it as any order may need, 15."""
        return Windows(sequences, before=15, positions=positions)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the n-grams as named tensors."""
        ngrams = self.head.ngrams
        return {} if ngrams is None else {_PREFIX + k: v for k, v in ngrams.tensors().items()}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Take the n-grams of another model, if they are valid and of as many classes."""
        tensors = {name.removeprefix(_PREFIX): value for name, value in state_dict.items()}
        ngrams = NGramModel.from_tensors(tensors)
        if ngrams.trie.num_classes != self.head.num_classes:
            raise ValueError(
                f"the n-grams are of {ngrams.trie.num_classes:,} classes, "
                f"the model has {self.head.num_classes:,}"
            )
        self.head.ngrams = ngrams
