"""Where a method is built: what it can ask for of the data, the settings and the other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

FACTS = ("num_classes", "counts", "dimension", "scorer", "sampler", "objective", "seed")
"""What a constructor gets, beside its options, if it has a parameter of that name."""


class Setup(Protocol):
    """What a method is built from.

    A method with a classmethod ``build`` gets all of this. Any other is called with its declared
    options, with those of ``FACTS`` that it has as parameters, and if it has a parameter
    ``num_samples`` with that.
    """

    options: Any
    """The settings, as attributes."""
    kind: str
    """text, or the format of the log."""
    num_classes: int
    counts: Tensor
    """How often each class was seen, int64 [V], falling but for new items at the end."""
    dimension: int
    """The length of the hidden states that the head reads."""
    items: nn.Embedding | None
    """Class vectors that the encoder has already, to be trained together with the head's."""
    corpus: Any
    """The ``Sequences`` that are trained on; None where a trained run is loaded."""
    vocabulary: Any
    item_features: Any
    """The ``FeatureTable`` of the classes, if there is one."""
    user_features: Any
    """The ``FeatureTable`` of the users, if there is one."""
    goals: Tensor | None
    """Where in ``corpus`` a goal was reached, bool [T]; None: nobody said."""
    seed: int
    """The seed of the run."""
    days: float
    """The time from the first to the last interaction; 0 where the log has no times."""

    @property
    def target_counts(self) -> Tensor | None:
        """``counts`` where classes are targets as often as they were counted; else None."""

    @property
    def ordered(self) -> bool:
        """Whether the items of a user stand in the order in which they were chosen."""

    @property
    def sparse(self) -> bool:
        """Whether a step leaves most class vectors alone."""

    @property
    def num_samples(self) -> int | None:
        """How many classes are drawn; None takes what the sampler has."""

    @property
    def scorer(self) -> Any:
        """The scorer of the head."""

    @property
    def sampler(self) -> Any:
        """The sampler of the head."""

    @property
    def objective(self) -> Any:
        """The objective of the head."""

    def bag_encoder(self, dimension: int) -> Any:
        """Return a new ``BagEncoder`` for the classes."""

    def part(self, kind: str, name: str, **options: Any) -> Any:
        """Return another method, built with these options in place of the settings."""

    def mixed_samplers(self) -> Any:
        """Return the samplers of a mixture, and their weights."""

    def search(self) -> Any:
        """Return the exact search for the best classes of hidden states."""

    def item_codes(self) -> Tensor:
        """Return the first categorical feature of each item, int64 [V]; without features, 0."""

    def side_information(self) -> Any:
        """Return a code of each item for each feature but numbers [V, F], and how many of each."""

    def head(self, dimension: int, *, items: nn.Embedding | None = None) -> Any:
        """Return the head for hidden states of a dimension, tied to ``items`` where it can be."""

    def item_encoder(self) -> Any:
        """Return the encoder of the items' features; None if there are none."""

    def user_encoder(self) -> Any:
        """Return the encoder of the users' features; None if there are none."""
