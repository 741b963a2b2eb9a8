"""From a configuration and a summary of the data to a model, and to how it is trained."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from copy import copy
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from widemax.candidates import Candidates
from widemax.config import Config
from widemax.config.resolution import is_ordered
from widemax.data import FeatureTable, Sequences
from widemax.data.summary import DataSummary
from widemax.declarations import Declaration, find
from widemax.declarations.setup import FACTS
from widemax.declarations.shared import FEATURE_DIMENSION
from widemax.declarations.table import load
from widemax.distributed.dividing import check_all_divided, divided_head
from widemax.distributed.tables import SlicedBagEncoder, SlicedTableScorer
from widemax.distributed.wire import Wire
from widemax.encoders import BagEncoder, FeatureEncoder
from widemax.heads import FullHead
from widemax.models import Model
from widemax.models.automatic import with_numbers
from widemax.models.options import WEIGHTS
from widemax.sampling import Sampler
from widemax.training.steps import Steps
from widemax.vocabulary import Vocabulary

_LOGGER = logging.getLogger(__name__)
_OF_THE_RUN = {
    "num_samples", "max_history", "item_features", "user_features",
    *(option.name for option in WEIGHTS),
}  # fmt: skip
"""Options that a run or a head reads for the method that declares them."""


def build_model(
    config: Config,
    data: DataSummary,
    corpus: Sequences | None = None,
    *,
    strict: bool = False,
    over: Wire | None = None,
) -> Model:
    """Return the untrained model of a configuration, from the state of torch's generator.

    Of distinct draws at most half of the classes are taken, and ``strict`` refuses more. The tables
    of classes are divided over the processes of ``over``, where it is given.
    """
    setup = RunSetup(config, data, corpus, strict=strict, over=over)
    model: Model = built(config.parts["model"], setup)
    if over is not None:
        check_all_divided(model, setup.num_classes)
    return model


def build_steps(
    config: Config,
    model: Model,
    data: DataSummary,
    corpus: Sequences,
    goals: Tensor | None = None,
) -> Steps:
    """Return how a configuration trains its model on sequences."""
    setup = RunSetup(config, data, corpus, goals)
    steps: Steps = load(config.parts["trainer"]).build(setup, model)
    return steps


def min_parameter_count(config: Config, data: DataSummary) -> int:
    """Return how many numbers the model of a configuration has at least.

    >>> words = Vocabulary.from_counts([f"w{i}" for i in range(10)], [1] * 10)
    >>> config = Config(model="nnlm", max_history=3, dimension=2, hidden_size=5)
    >>> min_parameter_count(config, DataSummary(kind="text", vocabulary=words))
    50
    """
    setup = RunSetup(config, data)
    return int(load(config.parts["model"]).min_parameter_count(setup))


def built(declaration: Declaration, setup: RunSetup) -> Any:
    """Return a method, by its own ``build`` or from what its constructor asks for by name."""
    thing = load(declaration)
    if hasattr(thing, "build"):
        return thing.build(setup)
    parameters = inspect.signature(thing).parameters
    arguments = {each.name: getattr(setup.options, each.name) for each in declaration.options}
    facts = [name for name in FACTS if name in parameters and name not in arguments]
    arguments |= {name: getattr(setup, name) for name in facts}
    if declaration.kind == "objective":
        return partial(thing, **arguments) if arguments else thing
    for name in _OF_THE_RUN - parameters.keys():
        arguments.pop(name, None)
    if wrong := arguments.keys() - parameters.keys():
        raise ValueError(
            f"{declaration.kind} {declaration.name!r} declares {min(wrong)!r}, which "
            f"{declaration.lives} does not take: a flag without an effect"
        )
    if "num_samples" in parameters:
        arguments["num_samples"] = setup.num_samples
    return thing(**arguments)


class RunSetup:
    """What the methods of a run are built from; see ``widemax.declarations.Setup``."""

    dimension: int
    items: nn.Embedding | None = None

    def __init__(
        self,
        config: Config,
        data: DataSummary,
        corpus: Sequences | None = None,
        goals: Tensor | None = None,
        *,
        strict: bool = False,
        over: Wire | None = None,
    ) -> None:
        config = with_numbers(config, int(data.vocabulary.counts.sum()))
        self.config, self.data, self.strict, self.over = config, data, strict, over
        self.options: Any = config
        self.kind, self.days = data.kind, data.days
        self.vocabulary: Vocabulary = data.vocabulary
        self.counts = data.vocabulary.counts
        self.num_classes = len(data.vocabulary)
        self.item_features, self.user_features = data.item_features, data.user_features
        self.corpus, self.goals = corpus, goals
        self.seed = config.seed

    def head(self, dimension: int, *, items: nn.Embedding | None = None) -> Any:
        """Return the head for hidden states of a dimension, tied to ``items`` where it can be."""
        setup = copy(self)
        setup.dimension, setup.items = dimension, items
        head = built(self.config.parts["head"], setup)
        return head if self.over is None else divided_head(head)

    def bag_encoder(self, dimension: int) -> BagEncoder:
        """Return a new ``BagEncoder`` for the classes."""
        if self.over is not None:
            return SlicedBagEncoder(self.num_classes, dimension, self.over)
        return BagEncoder(self.num_classes, dimension)

    @property
    def target_counts(self) -> Tensor | None:
        """``counts`` where classes are targets as often as they were counted; else None."""
        declaration = self.config.parts["model"]
        # A model that is not chosen yet has no code to ask.
        model = None if declaration.name == "auto" else load(declaration)
        return self.counts if getattr(model, "targets_follow_counts", True) else None

    @property
    def ordered(self) -> bool:
        """Whether the items of a user stand in the order in which they were chosen."""
        if self.kind == "text":
            return True
        return is_ordered(self.options.get("item_order", "auto"), find("format", self.kind).traits)

    @property
    def sparse(self) -> bool:
        """Whether a step leaves most class vectors alone."""
        return "sparse" in self.config.parts["head"].traits

    @cached_property
    def scorer(self) -> Any:
        """The scorer of the head."""
        if self.over is not None and self.config.parts["scorer"].name == "table":
            return SlicedTableScorer.over(self.over, self)
        return built(self.config.parts["scorer"], self)

    @cached_property
    def sampler(self) -> Any:
        """The sampler of the head."""
        chosen = [self.config.parts["sampler"], *(each for _, each in self.config.mixed)]
        if self.corpus is None and any("corpus" in each.traits for each in chosen):
            return UnknownProposal(self.num_classes, chosen[0].name)
        return built(chosen[0], self)

    @cached_property
    def objective(self) -> Any:
        """The objective of the head."""
        return built(self.config.parts["objective"], self)

    @property
    def num_samples(self) -> int | None:
        """How many classes are drawn; None takes what the sampler has."""
        if not self.config.has("num_samples"):
            return None
        asked, most = int(self.options.num_samples), self.sampler.max_samples
        if most is None or asked <= most:
            return asked
        if self.strict and self.config.origins["num_samples"] == "given":
            raise ValueError(
                f"num_samples must be at most {most:,}, half of the classes that can be drawn, as "
                f"draws are distinct (unique), got {asked:,}"
            )
        return int(most)

    def mixed_samplers(self) -> tuple[list[Any], list[float]]:
        """Return the samplers of a mixture, and their weights."""
        by_example = any("per-example" in each.traits for _, each in self.config.mixed)
        shared = {
            "unique": False,
            "per_example": by_example or bool(self.config.get("per_example", False)),
        }
        samplers = [
            self.part("sampler", part.name, **shared | dict(part.options))
            for part, _ in self.config.mixed
        ]
        return samplers, [part.weight for part, _ in self.config.mixed]

    def part(self, kind: str, name: str, **options: Any) -> Any:
        """Return another method, built with these options in place of the settings."""
        setup = copy(self)
        setup.options = _Overlay(self.config, options)
        return built(find(kind, name), setup)

    def search(self) -> Callable[[Tensor, int], Any]:
        """Return the exact search for the best classes of hidden states."""
        return FullHead(self.scorer).topk

    def item_encoder(self) -> FeatureEncoder | None:
        """Return the encoder of the items' features; None if there are none."""
        return self._encoder(self.item_features)

    def user_encoder(self) -> FeatureEncoder | None:
        """Return the encoder of the users' features; None if there are none."""
        return self._encoder(self.user_features)

    def _encoder(self, table: FeatureTable | None) -> FeatureEncoder | None:
        if table is None:
            return None
        # A model or scorer that does not declare the option has features of the usual length.
        length = self.options.get(FEATURE_DIMENSION.name, FEATURE_DIMENSION.default)
        return FeatureEncoder(table, length, sparse=True)

    def item_codes(self) -> Tensor:
        """Return the first categorical feature of each item; without features all are alike."""
        codes, _ = self.side_information()
        if codes is not None:
            return codes[:, 0]
        if self.corpus is not None:
            _LOGGER.warning("items have no categorical feature: all of them are one market")
        return torch.zeros(self.num_classes, dtype=torch.int64)

    def side_information(self) -> tuple[Tensor | None, list[int]]:
        """Return a code of each item for each of its features but numbers, and how many there are.

        Of a feature of tokens the first one stands for all.
        """
        table = self.item_features
        if table is None:
            return None, []
        categorical, tokens = (table.schema.of_kind(kind) for kind in ("categorical", "tokens"))
        firsts = [lists.values[lists.offsets[:-1]] for lists in table.tokens]
        columns = [*table.codes.unbind(1), *firsts]
        if not columns:
            return None, []
        return torch.stack(columns, 1), [each.num_codes for each in (*categorical, *tokens)]


class UnknownProposal(Sampler):
    """Stands for a sampler that is made from the data, in a run that is loaded without them."""

    def __init__(self, num_classes: int, name: str) -> None:
        super().__init__(num_classes)
        self.name = name

    def sample(
        self,
        num_samples: int | None,
        targets: Tensor,
        *,
        hidden: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Candidates:
        """Raise ValueError: what it would draw by is not part of a run."""
        raise ValueError(
            f"sampler = {self.name!r} is made from the data, which a run does not hold: it cannot "
            "be trained further without them"
        )

    def log_prob(self, ids: Tensor) -> Tensor:
        """Raise ValueError, as ``sample`` does."""
        raise ValueError(f"sampler = {self.name!r} is made from the data, and they are not here")


class _Overlay:
    """The settings of a run, some of them replaced."""

    def __init__(self, config: Config, options: dict[str, Any]) -> None:
        self._config, self._options = config, options

    def __getattr__(self, name: str) -> Any:
        return self._options[name] if name in self._options else getattr(self._config, name)

    def get(self, name: str, default: Any) -> Any:
        return self._options.get(name, self._config.get(name, default))
