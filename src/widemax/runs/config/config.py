"""The configuration of a run: every setting, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from widemax.runs.config.presets import KERNEL_MODELS, kernel_refusal, preset_for
from widemax.runs.config.settings import Setting, nearest, registered, setting, shortened

MODEL = "Model"
SAMPLING = "Sampling"
OPTIMISER = "Optimiser"
LENGTH = "Length of the run"
DATA = "Data"
VALIDATION = "Validation"
KEEPING = "Checkpoints and machine"

MAX_STEPS = 10**12

STRUCTURED = ("adaptive", "hierarchical")
"""The heads of trees and clusters, which never form a score for each class."""

NOT_DRAWN = ("all", "in-batch")
"""The samplers whose candidates are given: nobody says how many."""

EXACT_OBJECTIVES = ("full-logistic", "full-softmax")
"""The objectives that take the candidates for all classes there are."""

NOT_BY_NAME = (
    "batch-hard-negatives",
    "hard-negatives",
    "kneser-ney",
    "market",
    "mixture",
    "n-gram",
    "partition",
    "queue",
)
"""The samplers that need more than a name and numbers: they are for heads built in Python."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every setting of a training run: frozen, and valid once it exists.

    Formula: none.

    Shapes: flat; each field is a bool, int, float or str.

    Cost: a fraction of a millisecond; torch is not imported.

    Reference: none.

    Use when: a run is started, stored or compared with another. Avoid when: a head is built by
    hand in Python (its own arguments say more than a name can).

    The command line's flags are the field names: ``learning_rate`` is ``--learning-rate``.

    >>> Config(learning_rate=1).learning_rate
    1.0
    >>> Config(sampler="unigrm")
    Traceback (most recent call last):
    ValueError: sampler must be one of all, ... got the text 'unigrm'; did you mean 'unigram'?
    """

    model: str = setting(
        MODEL,
        "auto",
        "The model to train; auto chooses by the data.",
        choices=tuple(dict.fromkeys(("auto", *registered("MODELS")))),
    )
    head: str = setting(
        MODEL, "sampled", "The output layer that is trained.", choices=registered("HEADS")
    )
    trainer: str = setting(
        MODEL,
        "torch",
        "What trains: gradients, or for skip-gram and cbow a kernel, many times quicker.",
        choices=("torch", "kernel"),
    )
    dimension: int = setting(MODEL, 64, "Length of every class vector.", least=1, most=65_536)
    hidden_size: int = setting(MODEL, 200, "Units of each hidden layer.", least=1, most=65_536)
    dropout: float = setting(
        MODEL, 0.2, "Part of the units left out in a step.", least=0.0, most=0.99
    )
    num_layers: int = setting(
        MODEL, 0, "Hidden layers of the towers of retrieval models.", least=0, most=16
    )
    num_interests: int = setting(MODEL, 4, "Vectors that mind has of each user.", least=1, most=64)
    num_blocks: int = setting(MODEL, 2, "Blocks of attention of sasrec.", least=1, most=64)
    num_attention_heads: int = setting(
        MODEL, 1, "Heads of each attention of sasrec and sdm.", least=1, most=64
    )
    example_age: bool = setting(
        MODEL, False, "Whether youtube-dnn reads how old an example is; 0 when it is asked."
    )
    order: int = setting(
        MODEL, 5, "Words of the longest n-grams that are counted.", least=1, most=16
    )
    smoothing: str = setting(
        MODEL,
        "modified-kneser-ney",
        "How an n-gram model tells what it has not seen.",
        choices=registered("SMOOTHINGS"),
    )
    similarity: str = setting(
        MODEL,
        "dot",
        "What two vectors score: their product, or the cosine between them.",
        choices=("dot", "cosine"),
    )
    temperature: float = setting(
        MODEL, 1.0, "What the similarity is divided by, never the bias.", least=1e-6, most=1e6
    )
    bias: bool = setting(MODEL, False, "Whether each class has a bias.")

    sampler: str = setting(
        SAMPLING,
        "log-uniform",
        "Which classes compete with the target.",
        choices=tuple(name for name in registered("SAMPLERS") if name not in NOT_BY_NAME),
    )
    objective: str = setting(
        SAMPLING,
        "sampled-softmax",
        "How the scores of target and candidates become a loss.",
        choices=registered("OBJECTIVES"),
    )
    num_samples: int = setting(SAMPLING, 1024, "Classes drawn for each batch.", least=1, most=2**28)
    distortion: float = setting(
        SAMPLING,
        0.75,
        "The power of the counts by which the unigram sampler draws.",
        least=0.0,
        most=10.0,
    )

    optimizer: str = setting(
        OPTIMISER,
        "adam",
        "The optimiser; each touches only the rows that a batch used.",
        choices=("sgd", "adagrad", "rowwise-adagrad", "adam"),
    )
    learning_rate: float = setting(
        OPTIMISER, 0.001, "The step size after warming up.", least=1e-12, most=1000.0
    )
    weight_decay: float = setting(
        OPTIMISER, 0.0, "Pull of the touched rows towards 0.", least=0.0, most=1000.0
    )
    clip_norm: float = setting(
        OPTIMISER, 0.0, "Largest norm of the gradient; 0 does not clip.", least=0.0, most=1e9
    )
    schedule: str = setting(
        OPTIMISER,
        "constant",
        "How the learning rate falls towards the end.",
        choices=("constant", "linear", "cosine"),
    )
    warmup_steps: int = setting(
        OPTIMISER, 0, "Steps in which the learning rate rises from 0.", least=0, most=MAX_STEPS
    )

    batch_size: int = setting(LENGTH, 512, "Examples in a step.", least=1, most=2**20)
    epochs: int = setting(LENGTH, 10, "Passes over the data.", least=1, most=1_000_000)
    steps: int = setting(
        LENGTH, 0, "Steps to train instead of epochs; 0 counts epochs.", least=0, most=MAX_STEPS
    )
    time_budget: float = setting(
        LENGTH, 0.0, "Seconds after which training ends; 0 sets no limit.", least=0.0, most=1e9
    )

    user_column: str = setting(DATA, "", "Column of the users; empty guesses by its name.")
    item_column: str = setting(DATA, "", "Column of the items; empty guesses by its name.")
    time_column: str = setting(DATA, "", "Column of the times; empty guesses by its name.")
    goal_column: str = setting(
        DATA, "", "Column that is true where an item was booked or bought, for airbnb."
    )
    item_features: str = setting(
        DATA, "", "File with features of items; empty takes the .item beside an .inter."
    )
    user_features: str = setting(
        DATA, "", "File with features of users; empty takes the .user beside an .inter."
    )
    core: int = setting(
        DATA,
        0,
        "Interactions that every user and item of a log must have; 0 keeps all.",
        least=0,
        most=2**40,
    )
    session_gap: float = setting(
        DATA,
        0.0,
        "Seconds without a choice after which another session begins; 0 has one a user.",
        least=0.0,
        most=1e12,
    )
    walks: int = setting(DATA, 10, "Walks that eges takes from each item.", least=1, most=10_000)
    walk_length: int = setting(DATA, 10, "Items of each walk of eges.", least=2, most=10_000)
    min_count: int = setting(
        DATA, 1, "How often a class must occur to be kept.", least=1, most=2**40
    )
    unknown: str = setting(
        DATA, "", "The word that stands for those below min_count; empty leaves them out."
    )
    end: str = setting(DATA, "", "A word that ends every line of a text; empty adds none.")
    tokens: str = setting(
        DATA, "", "Regular expression of a word; empty takes what is between white space."
    )
    phrases: int = setting(
        DATA, 0, "Times that pairs of words are joined into phrases.", least=0, most=10
    )
    cache: bool = setting(DATA, False, "Whether a read text is kept beside it, for next time.")
    subsample: float = setting(
        DATA,
        0.0,
        "Words more frequent than this part are thinned out for cbow and skip-gram; 0 keeps all.",
        least=0.0,
        most=1.0,
    )
    max_history: int = setting(
        DATA, 50, "Most earlier items of a user that the model reads.", least=1, most=10_000
    )
    window: int = setting(
        DATA, 5, "Neighbours on each side that a word or item predicts.", least=1, most=1000
    )

    split: str = setting(
        VALIDATION,
        "last",
        "What of a log is held out: the last item of some users, the last fifth, or whole users.",
        choices=("last", "time", "user"),
    )
    validation_size: int = setting(
        VALIDATION,
        2000,
        "Examples held out to choose the checkpoint by; 0 validates never.",
        least=0,
        most=10**9,
    )
    test_size: int = setting(
        VALIDATION,
        10_000,
        "Other examples held out for `evaluate`, which choose nothing.",
        least=0,
        most=10**9,
    )
    validate_every: int = setting(
        VALIDATION, 0, "Steps between validations; 0 is once an epoch.", least=0, most=MAX_STEPS
    )
    metric: str = setting(
        VALIDATION,
        "loss",
        "What decides which checkpoint is best, and when to stop.",
        choices=("loss", "recall@20", "ndcg@20", "mrr"),
    )
    patience: int = setting(
        VALIDATION,
        3,
        "Validations without a better metric before training stops; 0 never stops early.",
        least=0,
        most=1_000_000,
    )

    checkpoint_every: int = setting(
        KEEPING, 0, "Steps between checkpoints; 0 is once an epoch.", least=0, most=MAX_STEPS
    )
    keep_last: int = setting(KEEPING, 2, "Checkpoints kept besides the best.", least=1, most=1000)
    seed: int = setting(
        KEEPING, 0, "Seed of the split, the parameters and the draws.", least=0, most=2**63 - 1
    )
    threads: int = setting(
        KEEPING, 0, "Threads for arithmetic; 0 leaves them to torch.", least=0, most=1024
    )
    tracking: str = setting(
        KEEPING,
        "",
        "Where metrics go besides the run's own file; empty is nowhere else.",
        choices=("", "tensorboard", "mlflow"),
    )

    @classmethod
    def for_model(cls, model: str, **given: bool | int | float | str) -> Config:
        """Return the usual settings of a model, as its flag on the command line does.

        >>> Config.for_model("skip-gram").trainer, Config(model="skip-gram").trainer
        ('kernel', 'torch')
        """
        values: Any = {"model": model, **given}
        return cls(**preset_for(values) | values)

    def model_for(self, kind: str) -> str:
        """Return the model that is named, or the one for this kind of source.

        >>> Config().model_for("text"), Config().model_for("csv")
        ('cbow', 'next-item')
        """
        if self.model != "auto":
            return self.model
        return "cbow" if kind == "text" else "next-item"

    @property
    def tower(self) -> tuple[int, ...]:
        """The units of each hidden layer of a tower.

        >>> Config(num_layers=2, hidden_size=128).tower
        (128, 128)
        """
        return (self.hidden_size,) * self.num_layers

    def __post_init__(self) -> None:
        for name, declaration in settings().items():
            # Frozen for everyone else: here an int that stands for a float becomes one.
            object.__setattr__(self, name, declaration.check(name, getattr(self, name)))
        _check_together(self)


def _check_together(config: Config) -> None:
    """Raise for values that are right by themselves and wrong together."""
    head, sampler, objective = config.head, config.sampler, config.objective
    if head in STRUCTURED and (config.similarity, config.temperature) != ("dot", 1):
        raise ValueError(
            f"head = {head!r} has no class vectors to compare: similarity must be 'dot' "
            f"and temperature 1, got {config.similarity!r} and {config.temperature:g}"
        )
    if head == "importance" and sampler in NOT_DRAWN:
        raise ValueError(
            f"head = 'importance' draws as many classes as it needs, sampler = {sampler!r} has its "
            "own: choose another, or head = 'sampled' with objective = 'importance-sampling'"
        )
    if head == "sampled" and objective in EXACT_OBJECTIVES and sampler != "all":
        raise ValueError(
            f"objective = {objective!r} is over every class: sampler must be 'all', got {sampler!r}"
        )
    if config.trainer == "kernel":
        _check_kernel(config)
    if 0 < config.steps < config.warmup_steps:
        raise ValueError(
            f"warmup_steps must be at most steps = {config.steps:,}, got {config.warmup_steps:,}"
        )


def _check_kernel(config: Config) -> None:
    if config.model not in KERNEL_MODELS:
        raise ValueError(
            f"trainer = 'kernel' trains model = {' or '.join(KERNEL_MODELS)}, got {config.model!r}"
        )
    if reason := kernel_refusal(asdict(config)):
        raise ValueError(
            f"trainer = 'kernel' knows negative sampling by fixed frequencies, and trees, without "
            f"biases: it cannot follow {reason}; trainer = 'torch' can"
        )


@cache
def settings() -> Mapping[str, Setting]:
    """Return every setting by its name, in the order of declaration.

    >>> settings()["dimension"].limits
    'a whole number between 1 and 65,536'
    """
    return MappingProxyType({each.name: each.metadata["setting"] for each in fields(Config)})


def check_key(name: str) -> Setting:
    """Return the setting of that name; an error names the nearest one.

    >>> check_key("learning-rat")
    Traceback (most recent call last):
    ValueError: 'learning-rat' is not a setting; did you mean 'learning_rate'?
    """
    found = settings().get(name)
    if found is None:
        hint = nearest(name, tuple(settings())) or "; --print-config lists them all"
        raise ValueError(f"{shortened(repr(name))} is not a setting{hint}")
    return found
