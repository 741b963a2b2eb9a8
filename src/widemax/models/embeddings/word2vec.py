"""CBOW and skip-gram: vectors of words from the words around them."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from widemax.data import Sequences, WindowBatch, Windows
from widemax.declarations import Setup, Value, declare
from widemax.encoders import BagEncoder
from widemax.heads import Head, HierarchicalHead
from widemax.models.base import Model
from widemax.models.embeddings.thinning import ThinnedWindows
from widemax.models.options import DIMENSION, SUBSAMPLE, WINDOW
from widemax.scoring import ShardedTableScorer, TableScorer
from widemax.training.epochs import AUTO_EPOCHS
from widemax.validation import ABSENT, check_fraction, check_tensor

_USUAL: dict[str, Value] = {
    "trainer": "kernel",
    "sampler": "unigram",
    "objective": "negative-sampling",
    "dimension": 100,
    "min_count": 5,
    "subsample": 1e-4,
}
_USUAL_WITH: dict[str, dict[str, Value]] = {
    # A softmax over a few draws learns little: so few only with the objective made for them.
    "negative-sampling": {"num_samples": 5, "unique": False, "per_example": True},
    "kernel": {"epochs": AUTO_EPOCHS},
    "torch": {"epochs": 5},
}


class BagModel(Model):
    """A head on the mean of the input vectors of a context."""

    encoder: BagEncoder


class WordModel(BagModel):
    """What CBOW and skip-gram share: windows of random reach, and fewer of the frequent words.

    Formula: in each epoch a word w is left out of the text with probability 1 − keep(w), and its
    neighbours move together (``ThinnedWindows``); of the ``window`` places on each side, those up
    to reach count, reach uniform in 1 … window and drawn anew for each example. Both only while
    training; ``GradientSteps`` and the kernel leave words out by themselves, a loop of your own by
    ``training_examples``.

    Reference: Mikolov et al. 2013.

    Use when: writing another model of words. Avoid when: order matters.
    """

    keep: Tensor
    targets_follow_counts = False
    starts_small = False
    """Whether a run starts near 0 even where gradients train it."""

    def __init__(self, encoder: BagEncoder, head: Head, *, keep: Tensor | None = None) -> None:
        super().__init__(encoder, head)
        if keep is None:
            keep = torch.ones(encoder.num_classes)
        elif check_tensor("keep", keep).shape != (encoder.num_classes,):
            raise ValueError(
                f"keep must have one value a class, {encoder.num_classes:,}, got {list(keep.shape)}"
            )
        # Known from the counts whenever the model is built: not part of what it learned.
        self.register_buffer("keep", keep.float(), persistent=False)

    @classmethod
    def build(cls, setup: Setup) -> Self:
        """Return the untrained model of a run."""
        options = setup.options
        keep = keep_probability(setup.counts.clamp(min=1), options.subsample)
        encoder = setup.bag_encoder(options.dimension)
        model = cls(encoder, setup.head(options.dimension), keep=keep)
        if cls.starts_small or options.trainer == "kernel":
            start_small(model)
        return model

    @staticmethod
    def windows(
        sequences: Sequences, *, max_history: int, window: int, positions: Tensor | None = None
    ) -> Windows:
        """Return each word with its neighbours; a word that is alone is no example."""
        return Windows(
            sequences, before=window, after=window, positions=positions, require_context=True
        )

    def key_vectors(self) -> Tensor:
        """Return the input vectors, which are the word vectors of word2vec."""
        return self.encoder.weight

    def training_examples(self, examples: Windows, seed: int) -> Windows | ThinnedWindows:
        """Return windows of a text that leave words out, others in each epoch."""
        if bool((self.keep >= 1).all()):
            return examples
        return ThinnedWindows(examples, self.keep, seed=seed)

    def narrowed(self, context: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return contexts [B, 2·window] as far as a reach that is drawn for each of them."""
        window = context.shape[1] // 2
        away = torch.arange(window, device=context.device)
        distance = torch.cat([away.flip(0), away])
        drawn = torch.rand(len(context), 1, generator=generator, device=context.device)
        return torch.where(distance <= (drawn * window).floor(), context, ABSENT)


@declare.model(
    "cbow",
    options=[DIMENSION, WINDOW, SUBSAMPLE],
    traits=["gradients", "kernel", "windows"],
    usual=_USUAL,
    usual_with=_USUAL_WITH,
)
class CBOW(WordModel):
    """A word from the mean of the words around it.

    Formula: target = word p of a sentence; context = up to ``window`` words on each side.

    Reference: Mikolov et al. 2013.

    Use when: vectors of words are wanted quickly. Avoid when: generating text (it sees the future),
    or most words are rare (``SkipGram``).

    >>> import torch
    >>> import widemax as wm
    >>> windows = CBOW.windows(wm.Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> windows.batch(torch.tensor([1])).context.tolist()
    [[4, 2]]
    """

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each example that is kept."""
        context = self.narrowed(batch.context, generator)
        there = (context >= 0).any(-1)
        context, targets = context[there], batch.targets[there]
        if not len(targets):
            return nothing_to_learn()
        losses: Tensor = self.head(self.encode(context), targets, generator=generator)
        return losses


@declare.model(
    "skip-gram",
    options=[DIMENSION, WINDOW, SUBSAMPLE],
    traits=["gradients", "kernel", "windows"],
    usual=_USUAL,
    # As in the program that came with the papers: pairs are many where a bag is one example.
    usual_with={**_USUAL_WITH, "kernel": {"epochs": AUTO_EPOCHS, "learning_rate": 0.025}},
)
class SkipGram(WordModel):
    """A word from each of the words around it, one at a time.

    Formula: for word p of a sentence and every neighbour c within reach, −log P(word p | u(c));
    ``encode`` of a whole context is the mean of its vectors, as in CBOW. One loss for each pair.

    Reference: Mikolov et al. 2013.

    Use when: vectors of words are wanted, rare ones too. Avoid when: generating text.

    >>> import torch
    >>> import widemax as wm
    >>> head = wm.FullHead(wm.TableScorer(5, 4))
    >>> model = SkipGram(wm.encoders.BagEncoder(5, 4), head)
    >>> windows = SkipGram.windows(wm.Sequences.from_lists([[4, 0, 2]]), max_history=5, window=1)
    >>> model(windows.batch(torch.arange(3)), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4])
    """

    def trained_on(self, batch: WindowBatch, generator: torch.Generator | None) -> Tensor:
        """Return the vector of one word around each target, [B, D]."""
        return self.encode(one_neighbour(batch.context, generator))

    def forward(self, batch: WindowBatch, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the training loss of each pair that is kept."""
        context = self.narrowed(batch.context, generator)
        there = context >= 0
        if not bool(there.any()):
            return nothing_to_learn()
        targets = batch.targets[:, None].expand_as(there)[there]
        hidden = embedding(context[there], self.encoder.weight, sparse=True)
        losses: Tensor = self.head(hidden, targets, generator=generator)
        return losses


def one_neighbour(context: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return one class of each context [B, H], drawn evenly from those that are there, [B, 1].

    >>> one_neighbour(torch.tensor([[-1, 7, -1], [-1, -1, -1]]), None).tolist()
    [[7], [-1]]
    """
    drawn = torch.rand(context.shape, device=context.device, generator=generator)
    place = drawn.masked_fill(context < 0, -1.0).argmax(1, keepdim=True)
    return context.gather(1, place)


def nothing_to_learn() -> Tensor:
    """Return one loss of 0 without effect, for a batch of which nothing was kept."""
    return torch.zeros(1, requires_grad=True)


def keep_probability(counts: Tensor, threshold: float) -> Tensor:
    """Return the probability with which each word is kept, float64 [V], to thin out frequent ones.

    It is min(1, sqrt(t/f) + t/f) with f = count / Σ counts and t the threshold, as in the code of
    Mikolov et al. 2013; 1 if t is 0.

    >>> keep_probability(torch.tensor([9900, 90, 10]), 0.001).tolist()
    [0.03279..., 0.44444..., 1.0]
    """
    if not check_fraction("threshold", threshold):
        return torch.ones(len(counts), dtype=torch.float64)
    ratio = threshold * counts.sum() / counts.double()
    return (ratio.sqrt() + ratio).clamp(max=1.0)


def start_small(model: WordModel) -> None:
    """Start near 0: input vectors within ±1/D, output vectors 0, biases as the head has set them.

    >>> model = CBOW.create([3, 2], head="hierarchical", dimension=4)  # starts small by itself
    >>> bool(model.encoder.weight.abs().max() <= 0.25), model.head.weight.tolist()
    (True, [[0.0, 0.0, 0.0, 0.0]])
    """
    # As gensim does, and twice as wide as word2vec: both tables grow from each other, and a short
    # text would otherwise end before they have.
    widest = 1 / model.encoder.dimension
    nn.init.uniform_(model.encoder.weight, -widest, widest)
    head = model.head
    # A network of its own, such as a tower, would stay at 0 for ever.
    tables = TableScorer | ShardedTableScorer
    if isinstance(head, HierarchicalHead) or isinstance(getattr(head, "scorer", None), tables):
        kept = getattr(getattr(head, "scorer", None), "bias", None)
        for parameter in head.parameters():
            if parameter is not kept:
                nn.init.zeros_(parameter)
