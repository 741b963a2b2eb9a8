"""What the experiments with language models share: the corpora, training, exact perplexity.

    brown = load_brown()  # or load_ptb(); None where there is no data
    model = NNLM(NNLMEncoder(brown.num_classes, 4, 64, 128), head)
    optimizer = RowAdam(decay_groups(model, 1e-5))
    history = train(
        model, brown.train, brown.valid, optimizer, epochs=10, batch_size=512, learning_rate=1e-3
    )
    perplexity(model, brown.test)

A corpus is three streams of class ids. ``train`` cuts the examples of the model from one of them,
measures the exact perplexity on another after each epoch, and leaves the model in the best of its
states. The model's encoder says how many words it reads (``context_size``); pass ``context_size``
for one that does not. The data are read from the folder WIDEMAX_DATA, by default ../shared/data
beside the checkout.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from _common import DATA, state_of
from widemax.data import Sequences, Windows
from widemax.evaluation import PerplexityReport, target_log_probs
from widemax.models import Model
from widemax.training.gradients.steps import GradientSteps
from widemax.training.schedules import Schedule, learning_rate_at
from widemax.training.steps import Examples
from widemax.vocabulary import Vocabulary

BROWN_TRAIN, BROWN_VALID = 800_000, 200_000


@dataclass(frozen=True, eq=False)
class Corpus:
    """Streams of class ids; ids and ``counts`` are in falling count of the training part."""

    name: str
    vocabulary: Vocabulary
    train: Tensor
    valid: Tensor
    test: Tensor

    @property
    def num_classes(self) -> int:
        return len(self.vocabulary)

    @property
    def counts(self) -> Tensor:
        """How often each class stands in the training part, int64 [V]; 0 for some of Brown."""
        return self.vocabulary.counts


def load_ptb() -> Corpus | None:
    """The Penn Treebank, <eos> after each line; None where it is missing."""
    folder = DATA / "ptb"
    if not folder.is_dir():
        return None
    words = {
        part: (folder / f"ptb.{part}.txt").read_text().replace("\n", " <eos> ").split()
        for part in ("train", "valid", "test")
    }
    vocabulary = Vocabulary.count(words["train"])
    streams = (vocabulary.encode(words[part]) for part in ("train", "valid", "test"))
    return Corpus("Penn Treebank", vocabulary, *streams)


def load_brown() -> Corpus | None:
    """Brown, with the words of the whole corpus that are seen four times; None if missing."""
    file = DATA / "brown/brown.txt"
    if not file.is_file():
        return None
    words = file.read_text().split()
    whole = Vocabulary.count(words, min_count=4, unknown="<unk>")
    parts = whole.encode(words).tensor_split([BROWN_TRAIN, BROWN_TRAIN + BROWN_VALID])
    # Which words there are is known beforehand; how often they are there only in training.
    counts = torch.bincount(parts[0], minlength=len(whole))
    vocabulary = Vocabulary.from_counts(whole.keys, counts, unknown=whole.unknown)
    new_ids = vocabulary.encode(whole.keys)
    return Corpus("Brown", vocabulary, *(new_ids[part] for part in parts))


class Epoch(NamedTuple):
    """What one epoch came to; ``seconds`` since training began, evaluations not counted."""

    epoch: int
    seconds: float
    valid_perplexity: float


@dataclass
class History:
    """The epochs of one training; the model is in the state of ``best``."""

    epochs: list[Epoch] = field(default_factory=list)

    @property
    def best(self) -> Epoch:
        return min(self.epochs, key=lambda epoch: epoch.valid_perplexity)

    @property
    def seconds(self) -> float:
        return self.epochs[-1].seconds


def train(
    model: Model,
    stream: Tensor,
    valid: Tensor,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    schedule: Schedule = "constant",
    warmup_epochs: float = 0.0,
    clip_norm: float = 0.0,
    seed: int = 0,
    patience: int | None = None,
    context_size: int | None = None,
    valid_every: int = 1,
    before_evaluation: Callable[[], object] = lambda: None,
    examples: Examples | None = None,
    progress: Callable[[str], object] = print,
) -> History:
    """Train a model on a stream, and leave it in the state with the best valid perplexity.

    Ends early after ``patience`` epochs in a row without a new best. ``valid_every`` n measures
    on each n-th word only, for quick probes. ``before_evaluation`` is called before each measuring,
    for what is not learned by gradients. Other ``examples`` than those that ``model.windows`` cuts
    from the stream may be given. Initialise the model under a seed of your own: this one orders
    the examples and seeds the samplers and dropout.
    """
    torch.manual_seed(seed)
    if examples is None:
        examples = examples_of(model, stream, context_size)
    steps = GradientSteps(
        model, optimizer, examples, batch_size=batch_size, seed=seed, clip_norm=clip_norm
    )
    rate = learning_rate_at(
        schedule,
        learning_rate,
        total_steps=epochs * steps.per_epoch,
        warmup_steps=round(warmup_epochs * steps.per_epoch),
    )
    history, best_state, seconds = History(), state_of(model), 0.0
    for epoch in range(epochs):
        start = time.perf_counter()
        for step in range(epoch * steps.per_epoch, (epoch + 1) * steps.per_epoch):
            steps.take(step, rate(step))
        seconds += time.perf_counter() - start
        before_evaluation()
        figure = perplexity(model, valid, context_size=context_size, every=valid_every)
        if figure < min([math.inf, *(each.valid_perplexity for each in history.epochs)]):
            best_state = state_of(model)
        history.epochs.append(Epoch(epoch + 1, seconds, figure))
        progress(f"epoch {epoch + 1:>3}  {seconds:7.0f} s  valid perplexity {figure:9.3f}")
        if patience is not None and epoch + 1 - history.best.epoch >= patience:
            break
    model.load_state_dict(best_state)
    return history


def perplexity(
    model: Model, stream: Tensor, *, context_size: int | None = None, every: int = 1
) -> float:
    """The exact perplexity on a stream, or on each n-th word of it."""
    log_probs = stream_log_probs(model, stream, context_size=context_size, every=every)
    return PerplexityReport.from_log_probs(log_probs).perplexity


def stream_log_probs(
    model: Model, stream: Tensor, *, context_size: int | None = None, every: int = 1
) -> Tensor:
    """log P of each word (each n-th word) of a stream, float64, exactly normalised."""
    positions = torch.arange(0, len(stream), every) if every > 1 else None
    model.eval()
    windows = examples_of(model, stream, context_size, positions)
    return target_log_probs(model.head, model.encode, windows)


@torch.no_grad()
def mean_states(model: Model, stream: Tensor, num_classes: int) -> Tensor:
    """The mean hidden state before each class in a stream, float64 [V, D]; 0 if it is not there."""
    model.eval()
    examples = examples_of(model, stream)
    sums = torch.zeros(num_classes, int(model.encoder.output_dimension), dtype=torch.float64)
    for rows in torch.arange(len(stream)).split(8192):
        batch = examples.batch(rows)
        sums.index_add_(0, batch.targets, model.encode(batch.context).double())
    return sums / torch.bincount(stream, minlength=num_classes).clamp(min=1)[:, None]


def examples_of(
    model: Model, stream: Tensor, context_size: int | None = None, positions: Tensor | None = None
) -> Windows:
    """The examples of a stream, taken as one long sentence."""
    if context_size is None:
        context_size = int(model.encoder.context_size)
    sequences = Sequences(stream, torch.tensor([0, len(stream)]))
    return model.windows(sequences, max_history=context_size, window=1, positions=positions)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser: matrices decay, biases and single vectors do not."""
    parameters: Iterable[nn.Parameter] = dict.fromkeys(model.parameters())
    matrices = [each for each in parameters if each.dim() > 1]
    others = [each for each in parameters if each.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
