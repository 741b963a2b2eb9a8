"""Training by gradients: batches, losses, an optimiser, on one device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from widemax.declarations import Need, Option, Setup, declare
from widemax.devices import find_device, moved
from widemax.optim import OPTIMIZERS, clip_grad_norm_, decay_groups
from widemax.training.epochs import EPOCHS_OF_TORCH
from widemax.training.gradients.averaging import RunningMean
from widemax.training.gradients.batches import Parts, even_batches
from widemax.training.guard import check_finite
from widemax.training.range_test import RANGE_STEPS
from widemax.training.steps import (
    DEVICE,
    LEARNING_RATE,
    LENGTH,
    MACHINE,
    SCHEDULE,
    STEPS,
    WARMUP_STEPS,
    Examples,
    shuffled,
)
from widemax.training.together import ALONE, Together

AUTO = "auto"
"""Has the number of classes choose the optimiser and how weights are averaged, and a range test the
learning rate."""
MOST_DENSE_CLASSES = 100_000
"""Of how many classes all rows are passed over at each step: of more, that costs more than it
gains."""
_AUTO_MEAN = 0.99

_HOST = torch.device("cpu")


@runtime_checkable
class CarriesState(Protocol):
    """A model of which a step leaves something to the next: its state after the words it read."""

    carried: Tensor | None


@runtime_checkable
class EpochExamples(Examples, Protocol):
    """Examples of which each epoch draws its own, as many as before."""

    def start_epoch(self, epoch: int) -> None:
        """Draw those of an epoch, the same whenever it is asked for."""


def chosen_optimizer(name: str, num_classes: int) -> str:
    """Return the optimiser that the name in a configuration stands for, with so many classes.

    >>> chosen_optimizer("auto", 20_000), chosen_optimizer("auto", 10**6)
    ('dense-adam', 'adam')
    """
    if name != AUTO:
        return name
    return "dense-adam" if num_classes <= MOST_DENSE_CLASSES else "adam"


def chosen_averaging(decay: float | str, num_classes: int) -> float:
    """Return how weights are averaged by what a configuration says, with so many classes.

    >>> chosen_averaging("auto", 20_000), chosen_averaging("auto", 10**6), chosen_averaging(0.5, 9)
    (0.99, 0.0, 0.5)
    """
    if isinstance(decay, str):
        return _AUTO_MEAN if num_classes <= MOST_DENSE_CLASSES else 0.0
    return decay


@declare.trainer(
    "torch",
    options=[
        Option(
            "optimizer",
            "adam",
            "The optimiser; all but dense-adam update only the rows that a batch used. auto is "
            f"dense-adam for up to {MOST_DENSE_CLASSES:,} classes, and adam for more.",
            choices=(AUTO, *OPTIMIZERS),
        ),
        replace(
            LEARNING_RATE,
            help="The learning rate after the warm-up; auto has a range test of "
            f"{RANGE_STEPS} steps choose it.",
            word=AUTO,
        ),
        Option(
            "weight_decay",
            0.0,
            "Weight decay of layers, apart from the gradient as in AdamW; tables, biases and norms "
            "have none of it.",
            most=1000.0,
        ),
        Option(
            "table_weight_decay",
            0.0,
            "Weight decay of tables, of classes, items and features, likewise: of the rows that a "
            "step updates.",
            most=1000.0,
        ),
        Option(
            "averaging",
            0.0,
            "How much the past weighs in a running mean of the weights, which is then judged and "
            "kept, such as 0.999; 0 keeps the weights of the last step. auto is "
            f"{_AUTO_MEAN} for up to {MOST_DENSE_CLASSES:,} classes, and 0 for more.",
            most=0.999999,
            word=AUTO,
        ),
        Option("clip_norm", 0.0, "Largest norm of the gradient; 0 does not clip.", most=1e9),
        SCHEDULE,
        WARMUP_STEPS,
        Option(
            "batch_size",
            512,
            "Targets per step; where one pass over a sequence predicts several, as many sequences "
            "as have about so many together.",
            least=1,
            most=2**20,
            group=LENGTH,
        ),
        EPOCHS_OF_TORCH,
        STEPS,
        DEVICE,
        Option(
            "precision",
            "fp32",
            "What products are computed in; bf16 is torch's autocast. Weights and sums stay "
            "float32.",
            choices=("fp32", "bf16"),
            group=MACHINE,
        ),
    ],
    needs=[Need("model", trait="gradients", why="trains by gradients")],
)
class GradientSteps:
    """A batch, its losses, their gradient, the optimiser: one step of any torch model.

    The rows of epoch e are a permutation seeded by (seed, e), so the step alone says which batch
    comes next; streams that are read side by side come in order, one stretch a step. A model may
    train on other examples than it is given, such as a text with fewer of its frequent words
    (``training_examples``). Draws of samplers come from a generator of its own, dropout from
    torch's; both are part of the state.
    """

    together: Together = ALONE
    """What part of each step this process takes."""
    loss: Tensor | None = None
    """The mean loss of the last step, as far as this process has part in it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        *,
        batch_size: int,
        seed: int = 0,
        clip_norm: float = 0.0,
        averaging: float = 0.0,
        parts: Parts | None = None,
        num_targets: Tensor | None = None,
        weights: Tensor | None = None,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
    ) -> None:
        """Take ``batch_size`` rows a step; given ``num_targets`` of each row, that many targets.

        ``weights`` [T] multiply the loss of the target at each place of the data, as the
        ``places`` of the examples find it. ``device`` is where the parameters of the optimiser are:
        there the model is while steps are taken, and on the CPU once it is published.
        """
        if not len(examples):
            raise ValueError("there are no examples to train on")
        chosen = getattr(model, "training_examples", None)
        self.examples: Examples = examples if chosen is None else chosen(examples, seed)
        self.model, self.optimizer = model, optimizer
        self.batch_size, self.seed, self.clip_norm = batch_size, seed, clip_norm
        self._mean = RunningMean(model, averaging) if averaging else None
        self._parts, self._num_targets, self._weights = parts, num_targets, weights
        rows = [len(examples)] if parts is None else parts.sizes
        if num_targets is not None:
            rows = [int(num_targets.sum())]
        self.per_epoch = sum(math.ceil(each / batch_size) for each in rows)
        self.device, self.precision = torch.device(device), precision
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._order: tuple[int, list[Tensor]] | None = None

    @classmethod
    def build(cls, setup: Setup, model: Any) -> GradientSteps:
        """Return how a run trains its model: on the examples that the model cuts."""
        options = setup.options
        examples = model.examples(setup, model.training_sequences(setup, setup.corpus))
        optimizer: Any = OPTIMIZERS[chosen_optimizer(options.optimizer, setup.num_classes)]
        # One pass over a stretch predicts each of its words or items.
        num_targets: Tensor | None = getattr(examples, "num_targets", None)
        most = 1 if num_targets is None or not len(num_targets) else int(num_targets.max())
        if options.batch_size < most:
            raise ValueError(
                f"batch_size must be at least {most:,}, what is predicted in one pass over a "
                f"sequence, got {options.batch_size:,}"
            )
        device = find_device(options.device)
        model.to(device)
        return cls(
            model,
            optimizer(
                decay_groups(
                    model,
                    weight_decay=options.weight_decay,
                    table_weight_decay=options.table_weight_decay,
                ),
                lr=options.learning_rate,
            ),
            examples,
            batch_size=1 if getattr(examples, "in_order", False) else options.batch_size,
            seed=options.seed,
            clip_norm=options.clip_norm,
            averaging=chosen_averaging(options.averaging, setup.num_classes),
            parts=Parts.of(model.head.proposal, examples),
            num_targets=num_targets,
            weights=setup.corpus.relative_weights(),
            device=device,
            precision=options.precision,
        )

    def take(self, step: int, learning_rate: float) -> None:
        """Train on the batch of this step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self._go_to(self.device)
        if self._mean is not None:
            self._mean.hide()
        if not self.model.training:  # as validation leaves it; to go through all parts takes time
            self.model.train()
        self.optimizer.zero_grad()
        rows = self.together.own_rows(self._rows(step), step=step)
        if self._parts is not None:
            self._parts.select(rows)
        batch = self._there(self.examples.batch(rows))
        with self._precision():
            losses = self.model(batch, generator=self.together.own_generator(self.generator))
        loss = self._mean_of(losses, rows)
        torch.autograd.backward(loss)
        self.loss = loss.detach()
        self.together.exchange(self.model)
        trained = [each for group in self.optimizer.param_groups for each in group["params"]]
        check_finite(self.model, losses, step=step, parameters=trained)
        if self.clip_norm:
            clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        if self._mean is not None:
            self._mean.update(step)

    def _mean_of(self, losses: Tensor, rows: Tensor) -> Tensor:
        """Return the mean of the losses, each times its weight; a weight of 0 does not count."""
        if self._weights is None:
            return self.together.mean(losses)
        places = self.examples.places(rows)  # type: ignore[attr-defined]
        weights: Tensor = self._there(self._weights[places])
        return self.together.mean(losses * weights, (weights > 0).sum())

    def _rows(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            rows = torch.arange(len(self.examples))
            if not getattr(self.examples, "in_order", False):
                rows = shuffled(len(self.examples), self.seed, epoch)
            self._order = epoch, self._batches(rows)
            if isinstance(self.examples, EpochExamples):
                self.examples.start_epoch(epoch)
        return self._order[1][place]

    def _batches(self, rows: Tensor) -> list[Tensor]:
        if self._num_targets is not None:
            return even_batches(rows, self._num_targets, self.per_epoch)
        groups = [rows] if self._parts is None else self._parts.grouped(rows)
        return [each for group in groups for each in torch.split(group, self.batch_size)]

    def _there(self, value: Any) -> Any:
        return value if self.device == _HOST else moved(value, self.device)

    def _precision(self) -> AbstractContextManager[None]:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _go_to(self, device: torch.device) -> None:
        """Move the model, the same parameters as before, where it is not there already."""
        if self.device != _HOST:
            self.optimizer.zero_grad()
            self.model.to(device)

    def publish(self) -> None:
        """Bring the model to the CPU, with the running mean of its weights where there is one.

        Until the next step.
        """
        if self._mean is not None:
            self._mean.show()
        self._go_to(_HOST)

    def state(self) -> dict[str, Any]:
        """Return the state of optimiser and generators, what a mean hides and a model carries."""
        state = {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "torch": torch.get_rng_state(),
            **({} if self._mean is None else {"trained": self._mean.state()}),
            **({"carried": self.model.carried} if isinstance(self.model, CarriesState) else {}),
        }
        if self.device != _HOST:
            state["device"] = torch.get_device_module(self.device).get_rng_state()
            state = moved(state, _HOST)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        if ("device" in state) != (self.device != _HOST):
            raise ValueError(
                f"device = {self.device.type!r} cannot go on from a checkpoint of another device"
            )
        self._go_to(self.device)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        if self.device != _HOST:
            torch.get_device_module(self.device).set_rng_state(state["device"])
        torch.set_rng_state(state["torch"])
        if self._mean is not None:
            self._mean.load_state(state["trained"])
        if isinstance(self.model, CarriesState):
            self.model.carried = self._there(state["carried"])
