"""A smoothed n-gram language model as a proposal that knows the context."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from widemax.declarations import Need, Setup, declare
from widemax.ngrams import NGramModel
from widemax.ngrams.drawing import draw, running_shares
from widemax.ngrams.trie import Trie
from widemax.sampling.base import NUM_SAMPLES, DrawnSampler
from widemax.sampling.conditional.interpolated import PROPOSAL_ORDER, check_preceding, table_shape


@declare.sampler(
    "kneser-ney",
    options=[NUM_SAMPLES, PROPOSAL_ORDER],
    traits=["draws", "corpus", "per-example"],
    needs=[Need("model", trait="context", why="draws by what came before the target")],
)
class KneserNeySampler(DrawnSampler):
    """Draws from a Kneser–Ney model of the context, close to P from the first step.

    Formula: p(y | c) = own(c, y) + γ(c) · p(y | c without its first id), as in ``NGramModel``: with
    probability γ(c) the first id is forgotten, else an n-gram of c is drawn by its own part.

    Shapes: context [B, order − 1], oldest id first, −1 where the sentence has not begun; candidates
    [B, S]. A context of one row holds for every row.

    Cost: O(log G) a draw, log p by O(order · log G) for G distinct n-grams; 32 bytes an n-gram.

    Reference: Bengio & Senécal 2003 (n-gram proposals); Kneser & Ney 1995; Chen & Goodman 1999.

    Use when: words are predicted and the proposal should be a good language model itself. Avoid
    when: the proposal should follow the model as it learns (``NGramSampler`` with ``adapt``).

    ``sample`` has no argument for the context: call ``set_context`` before the head's forward, with
    the rows the head will see (``ImportanceHead`` takes ``context`` and does both). Without a
    context the unigram remains. The model must give every class a probability above 0 and be
    interpolated: one of maximum likelihood is refused, as are ARPA files of Katz's back-off.

    >>> import torch
    >>> from widemax.data import Sequences
    >>> sentences = Sequences.from_lists([[1, 2, 0], [1, 1, 2, 0], [2, 1, 0]])
    >>> sampler = KneserNeySampler(NGramModel.modified_kneser_ney(sentences, 3, order=2))
    >>> sampler.set_context(torch.tensor([[1], [-1]]))
    >>> sampler.log_prob(torch.arange(3).expand(2, 3)).exp().round(decimals=3).tolist()
    [[0.28, 0.315, 0.405], [0.155, 0.524, 0.321]]
    """

    _keys: Tensor
    _log_probs: Tensor
    _log_backoffs: Tensor
    _running: Tensor
    _places: Tensor

    def __init__(self, model: NGramModel) -> None:
        if not isinstance(model, NGramModel):
            raise ValueError(f"model must be an NGramModel, got {type(model).__name__}")
        super().__init__(model.num_classes, per_example=True)
        self.order, trie = model.order, model.trie
        _check_smoothed(trie)
        # Like the corpus of an NGramSampler they are not state that training changes.
        self.register_buffer("_keys", trie.keys, persistent=False)
        self.register_buffer("_log_probs", trie.log_probs, persistent=False)
        self.register_buffer("_log_backoffs", trie.log_backoffs, persistent=False)
        self.register_buffer("_running", running_shares(trie), persistent=False)
        self.register_buffer("_places", torch.empty(0, dtype=torch.int64), persistent=False)
        self.set_context(None)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the sampler of a run: the n-grams of what is trained on, smoothed."""
        order = setup.options.proposal_order
        return cls(NGramModel.modified_kneser_ney(setup.corpus, setup.num_classes, order=order))

    def set_context(self, context: Tensor | None) -> None:
        """Set what came before each row of the next batch: [B, order − 1], or [1, …] for all."""
        if context is None:
            context = torch.empty((1, 0), dtype=torch.int64)
        else:
            context = check_preceding(context, self.num_classes, self.order)
        self._places = self._trie.context_places(context.to(self._keys.device), self.order)

    def draw(
        self,
        shape: tuple[int, ...],
        *,
        device: torch.device | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return independent draws, int64; their first dimension is that of the context."""
        size = (2, *table_shape(len(self._places), shape))
        uniform = torch.rand(
            size, dtype=torch.float64, device=self._keys.device, generator=generator
        )
        return draw(self._trie, self._running, self._places, uniform).view(shape)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Return log p(y | context) for ids [B] or [B, S], or of any shape with one context."""
        table = ids.reshape(table_shape(len(self._places), ids.shape))
        return self._trie.score(self._places, table).view(ids.shape)

    @property
    def _trie(self) -> Trie:
        return Trie(self.num_classes, self._keys, self._log_probs, self._log_backoffs)


def _check_smoothed(trie: Trie) -> None:
    """Refuse a model in which some class may have probability 0."""
    possible = trie.log_probs.isfinite() & trie.log_backoffs.isfinite()
    # The begin marker is never drawn.
    possible[trie.base] = trie.log_backoffs[trie.base].isfinite()
    if not bool(possible.all()):
        raise ValueError(
            "model must give every class a probability above 0 after every context, but "
            f"{int((~possible).sum()):,} n-grams or back-offs have none: smooth it"
        )
