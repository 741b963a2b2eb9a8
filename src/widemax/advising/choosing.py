"""The decision table of docs/choosing.md and docs/retrieval.md, as rules with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from widemax.advising.machine import Machine
from widemax.advising.memory import memory_of
from widemax.advising.situation import LANGUAGE_NEEDS, Situation
from widemax.advising.work import settled, work_of
from widemax.config import Config
from widemax.declarations import Value
from widemax.models.automatic import with_numbers

FEW_CLASSES = 12_000
"""Up to so many classes the exact softmax is taken."""
MANY_CLASSES = 200_000
"""From so many classes on, no step may pass over all rows of a table."""
ASSUMED_TARGETS = 10**7
"""Interactions or words where nobody says how many: the word2vec kernel's steps depend on it."""
_SHORT_HISTORY = 4.0
_SKEWED = 0.5
_SLOW_STEP = 0.25
_LONG_TRAINING = 1800.0
_ERROR = 0.05
"""How far off the sum over all classes may be, estimated from the draws."""
_MOST_SAMPLES = 8192
_MEAN_COUNT = 10.0
"""How often a class is a target where nobody says how many there are."""
_SMALLEST_DIMENSION = 8
_ROW_RATE = 50.0
"""How many times larger the learning rate of Adagrad by rows is than Adam's."""


class Reason(NamedTuple):
    """A decision and why it was taken.

    >>> Reason("head", "full", "it is exact.").decision
    'full'
    """

    about: str
    """What was decided."""
    decision: str
    """What it is."""
    why: str
    """A sentence."""


class Choice:
    """Settings that follow from a situation, one decision after the other, each with its reason.

    What is given already is kept: nothing here overrules it.
    """

    def __init__(self, situation: Situation, machine: Machine) -> None:
        self.situation, self.machine = situation, machine
        self.settings: dict[str, Value] = dict(situation.given)
        self.reasons: list[Reason] = []
        self._choose_model()
        self._choose_head()
        self._avoid_whole_tables()
        self._choose_numbers()
        self._fit_memory()

    @property
    def config(self) -> Config:
        """The configuration as far as it is decided."""
        return config_of(self.situation, self.settings)

    def predicted(self, settings: Mapping[str, Value]) -> float | None:
        """Return the seconds of a step with some settings; None for a model that is not counted."""
        situation = self.situation
        config = config_of(situation, {**self.settings, **settings})
        work = work_of(config, situation.popularity, situation.num_targets or ASSUMED_TARGETS)
        return None if work is None else self.machine.seconds(work)

    def _decide(self, about: str, decision: Value, why: str) -> None:
        """Take a decision, unless it is given."""
        if about in self.situation.given:
            decision, why = self.situation.given[about], "You have decided it."
        self.settings[about] = decision
        shown = f"{decision:,}" if isinstance(decision, int) else str(decision)
        self.reasons.append(Reason(about, shown, why))

    # -- the model ---------------------------------------------------------------------------------

    def _choose_model(self) -> None:
        self._decide("model", *(self._text_model() if self._is_text else self._log_model()))
        config = config_of(self.situation, {"model": self.settings["model"]})
        if "head" not in config.parts:
            raise ValueError(
                f"model = {config.model!r} has no output layer to choose; leave it out, or name "
                "one that has"
            )

    @property
    def _is_text(self) -> bool:
        return self.situation.source == "text"

    def _text_model(self) -> tuple[str, str]:
        if not self.situation.needs & LANGUAGE_NEEDS:
            return "cbow", (
                "Vectors of words are wanted, not their probabilities: CBOW trains millions of "
                "words a second."
            )
        if "new-items" not in self.situation.needs:
            hours = self._training_seconds("lstm") / 3600
            if 0 < 3600 * hours <= _LONG_TRAINING:
                return "lstm", (
                    "It reads all words before the next one, and its training is expected to take "
                    f"{60 * hours:.0f} minutes here."
                )
            if hours:
                return "nnlm", (
                    "It predicts a word from the last five; the more exact lstm is expected to "
                    f"train for {hours:.1f} hours here."
                )
        return "nnlm", "It predicts a word from the last five, and trains quickly."

    def _log_model(self) -> tuple[str, str]:
        situation = self.situation
        if "new-items" in situation.needs:
            if not situation.features:
                raise ValueError(
                    f"needs = new-items: no features of the items of {situation.path} were found; "
                    "name their file with --item-features (item_features)"
                )
            return "two-tower", "A tower computes an item's vector from its features, new or not."
        if situation.labels > 1:
            return "item2vec", (
                "An example has many right answers: items are trained with all their neighbours, "
                "pair by pair."
            )
        if not situation.ordered:
            return "youtube-dnn", (
                "The order of a user's items means nothing: the mean of their vectors is hard to "
                "beat."
            )
        if situation.num_classes > MANY_CLASSES:
            return "youtube-dnn", (
                "One table for what is read and what is predicted, of which a step touches only "
                "the rows that it uses."
            )
        if 0 < situation.length < _SHORT_HISTORY:
            return "youtube-dnn", (
                f"Users have {situation.length:.1f} items on average: too few for their order to "
                "say much."
            )
        return "sasrec", "Self-attention reads which item came after which."

    def _training_seconds(self, model: str) -> float:
        """Return how long a whole training is expected to take; 0 where nobody knows."""
        situation = self.situation
        head = self._exact_or("sampled")
        seconds = self.predicted({"model": model, "head": head})
        config = config_of(situation, {**self.settings, "model": model, "head": head})
        return (seconds or 0.0) * num_steps(config, situation.num_targets)

    # -- the output layer --------------------------------------------------------------------------

    def _exact_or(self, head: str) -> str:
        return "full" if self.situation.num_classes <= FEW_CLASSES else head

    def _choose_head(self) -> None:
        situation, model = self.situation, self.settings["model"]
        if model in ("item2vec", "cbow", "skip-gram"):
            self._decide("head", "sampled", "A few negatives a pair are enough for good vectors.")
            self._decide(
                "objective",
                "negative-sampling",
                "Many right answers share an example: each pair is a yes or no of its own.",
            )
            self._decide("sampler", "unigram", "Negatives are drawn by how often they occur.")
            return
        if model == "two-tower":
            self._decide(
                "head", "sampled", "The vectors of all items cannot be computed in a step."
            )
            self._decide(
                "sampler",
                "in-batch",
                "The vectors of the batch's own items are computed already; log Q corrects for "
                "their popularity.",
            )
            self._decide("objective", "sampled-softmax", "F learns log P up to a constant.")
            return
        if "new-items" in situation.needs:
            self._decide("scorer", "char-cnn", "A word gets its vector from its spelling.")
            self._choose_sampling("The vectors of all words are too costly to compute.")
        elif situation.num_classes <= FEW_CLASSES:
            self._decide(
                "head",
                "full",
                f"With {situation.num_classes:,} classes the exact softmax is affordable: "
                "normalised, unbiased, nothing to tune.",
            )
        elif "probabilities" in situation.needs:
            self._choose_normalised()
        else:
            self._choose_sampling(
                f"The cost of a step does not grow with the {situation.num_classes:,} classes."
            )
        # Another head, as it was given, may have these, too.
        if self.settings["head"] == "sampled" and "sampler" not in self.settings:
            self._choose_sampling("You have decided it.")

    def _choose_normalised(self) -> None:
        popular = self.situation.popularity.top_share(0.05)
        if "serving" in self.situation.needs:
            self._decide("head", "sampled", "An index needs a vector of each class.")
            self._decide("objective", "nce", "Its scores are near log P without a normaliser.")
            self._decide("sampler", "unigram", "NCE learns best from noise that is like the data.")
            return
        seconds = self.predicted({"head": "adaptive"})
        if popular >= _SKEWED and seconds is not None and seconds <= _SLOW_STEP:
            self._decide(
                "head",
                "adaptive",
                f"Normalised, and near the exact softmax: 5 % of the classes are {popular:.0%} of "
                "the targets, the others have shorter vectors.".replace("%", " %", 1),
            )
            return
        bits = self.situation.popularity.entropy_bits
        self._decide(
            "head",
            "hierarchical",
            f"Normalised by construction, and a path has {bits:.1f} nodes on average where there "
            f"are {self.situation.num_classes:,} classes.",
        )

    def _choose_sampling(self, why: str) -> None:
        self._decide("head", "sampled", why)
        if self.settings["head"] != "sampled":
            return
        self._decide(
            "sampler",
            "log-uniform" if self._is_text else "unigram",
            "It draws distinct classes by their rank in frequency, and has no table."
            if self._is_text
            else "It draws distinct classes by a power of their counts, which are known.",
        )
        self._decide(
            "objective",
            "sampled-softmax",
            "One right answer an example: F learns log P up to a constant, corrected by log Q.",
        )

    # -- numbers -----------------------------------------------------------------------------------

    def _avoid_whole_tables(self) -> None:
        """Let no step of a large table pass over all its rows."""
        config = self.config
        if self.situation.num_classes <= MANY_CLASSES or config.get("trainer", "") != "torch":
            return
        if config.optimizer == "dense-adam":
            self._decide("optimizer", "adam", "It updates only the rows that a batch used.")
        if settled(config, self.situation.num_classes, self.situation.num_targets).averaging:
            self._decide("averaging", 0.0, "A mean of the weights is a pass over all rows.")

    def _choose_numbers(self) -> None:
        config = self.config
        if config.has("num_samples"):
            self._decide("num_samples", *self._num_samples(config))
        if config.has("batch_size"):
            self._decide(
                "batch_size",
                config.batch_size,
                f"What {config.model} is usually trained with: its learning rate belongs to it.",
            )

    def _num_samples(self, config: Config) -> tuple[int, str]:
        usual, curve = int(config.num_samples), self.situation.popularity
        if config.get("objective", "") == "negative-sampling":
            return usual, f"A few a pair, as {config.model} is usually trained with."
        proposal = curve.log_uniform()
        if config.sampler == "unigram":
            mean_count = self.situation.num_targets / curve.num_classes or _MEAN_COUNT
            proposal = curve.by_power(config.distortion, config.extra_count / mean_count)
        elif config.sampler == "uniform":
            proposal = curve.by_power(0.0)
        distinct = bool(config.get("unique", False))
        most = max(1, min(_MOST_SAMPLES, self.situation.num_classes // 4))
        number = min(usual, most)
        while number < most and curve.sum_error(proposal, number, distinct=distinct) > _ERROR:
            number = min(2 * number, most)
        error = curve.sum_error(proposal, number, distinct=distinct)
        return number, (
            f"By the popularity of the classes so many draws tell the sum over all of them to "
            f"within {100 * error:.2g} %."
        )

    # -- memory ------------------------------------------------------------------------------------

    def _memory(self) -> int:
        situation = self.situation
        return sum(memory_of(self.config, situation.popularity, situation.num_targets).values())

    def _fit_memory(self) -> None:
        """Save memory until it is enough: what costs the least quality comes first."""
        limit = self.situation.memory
        if not limit or self._memory() <= limit:
            return
        config = settled(self.config, self.situation.num_classes, self.situation.num_targets)
        if config.has("optimizer") and config.optimizer != "rowwise-adagrad":
            before = self._memory()
            rate = _ROW_RATE * config.learning_rate
            self._decide("optimizer", "rowwise-adagrad", "One number of state a row.")
            if self.settings["optimizer"] == "rowwise-adagrad":
                self._decide("learning_rate", rate, "Adagrad by rows wants 50 times Adam's.")
                saved = _gigabytes(before - self._memory())
                self.reasons[-2] = self.reasons[-2]._replace(
                    why=f"One number of state for each row instead of {config.optimizer}'s for "
                    f"each parameter, which saves {saved}."
                )
        if self._memory() > limit and config.get("averaging", 0.0):
            self._decide("averaging", 0.0, "A mean of the weights is another copy of them.")
        drawn_by_table = config.get("sampler", "") == "unigram"
        if config.get("objective", "") == "negative-sampling":
            drawn_by_table = False  # the noise is part of what it learns
        if self._memory() > limit and drawn_by_table:
            self._redecide("sampler", "log-uniform", "It needs no table to draw from.")
            if "num_samples" not in self.situation.given:
                del self.settings["num_samples"]
                self._redecide("num_samples", *self._num_samples(self.config))
        dimension = int(self.config.dimension)
        smaller = dimension
        while self._memory() > limit and smaller > _SMALLEST_DIMENSION:
            smaller = max(_SMALLEST_DIMENSION, (smaller - 1) // 8 * 8)
            self.settings["dimension"] = smaller
        if self._memory() > limit:
            raise ValueError(
                f"memory = {_gigabytes(limit)} is too little for {self.situation.num_classes:,} "
                f"classes: with a dimension of {smaller} it would take {_gigabytes(self._memory())}"
            )
        if smaller != dimension:
            if "dimension" in self.situation.given:
                self.settings["dimension"] = dimension
                raise ValueError(
                    f"memory = {_gigabytes(limit)} is too little for vectors of {dimension:,}, "
                    f"which take {_gigabytes(self._memory())}; {smaller} would fit"
                )
            self._decide(
                "dimension",
                smaller,
                f"Vectors of {dimension:,} would not fit into {_gigabytes(limit)}.",
            )

    def _redecide(self, about: str, decision: Value, why: str) -> None:
        """Replace a decision that was taken before."""
        self.reasons = [each for each in self.reasons if each.about != about]
        if about == "sampler":
            for name in ("distortion", "extra_count"):
                if name not in self.situation.given:
                    self.settings.pop(name, None)
        self._decide(about, decision, why)


def config_of(situation: Situation, settings: Mapping[str, Any]) -> Config:
    """Return the configuration of settings; those that are not given and have no use are dropped.

    >>> from widemax.advising.situation import planned
    >>> config_of(planned(100), {"head": "full", "num_samples": 5}).has("num_samples")
    False
    """
    slots = ("model", "trainer", "head", "scorer", "sampler", "objective")
    chosen: dict[str, Value] = {"model": settings.get("model", "auto")}
    for slot in slots:
        if slot in settings:
            probe = Config(source=situation.source, **chosen)
            if slot in situation.given or slot in probe.parts:
                chosen[slot] = settings[slot]
    probe = Config(source=situation.source, **chosen)
    rest = {
        name: value
        for name, value in settings.items()
        if name not in slots and (name in situation.given or probe.has(name))
    }
    return Config(source=situation.source, **chosen, **rest)


def num_steps(config: Config, num_targets: int) -> int:
    """Return how many steps a training has, at most: patience may end it earlier."""
    if config.get("steps", 0):
        return int(config.steps)
    config = with_numbers(config, num_targets)
    epochs, batch = int(config.get("epochs", 0)), int(config.get("batch_size", 0))
    return epochs * -(-num_targets // batch) if batch else 0


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
