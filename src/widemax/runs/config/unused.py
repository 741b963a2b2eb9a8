"""Settings that a configuration makes no use of: what each one needs, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from widemax.runs.config.config import NOT_DRAWN, Config
from widemax.runs.config.settings import Value


@dataclass(frozen=True, kw_only=True)
class Need:
    """What another setting must be, or with ``negated`` must not be, for one to have an effect."""

    setting: str
    values: tuple[Value, ...]
    negated: bool = False

    def is_met(self, config: Config) -> bool:
        """Return whether a configuration meets the need."""
        return (getattr(config, self.setting) in self.values) != self.negated

    @property
    def words(self) -> str:
        """The need in words."""
        values = " or ".join(map(str, self.values))
        return f"{self.setting} {'other than ' if self.negated else '= '}{values}"


_SAMPLES = Need(setting="head", values=("sampled", "importance"))
_BY_GRADIENTS = Need(setting="trainer", values=("torch",))
_COUNTED = ("ease", "item-knn", "n-gram", "popularity")
_NEURAL = Need(setting="model", values=(*_COUNTED, "ials"), negated=True)
_TOWERS = ("mind", "two-tower", "youtube-dnn")
_WINDOWED = ("auto", "airbnb", "cbow", "eges", "item2vec", "skip-gram")
_SESSIONS = Need(setting="model", values=("airbnb", "eges", "item2vec"))
_FEATURES = ("airbnb", "eges", "mind", "sdm", "two-tower", "youtube-dnn")
_VALIDATES = Need(setting="validation_size", values=(0,), negated=True)

NEEDS: Mapping[str, tuple[Need, ...]] = MappingProxyType(
    {
        "head": (_NEURAL,),
        "dimension": (Need(setting="model", values=_COUNTED, negated=True),),
        "similarity": (_NEURAL,),
        "temperature": (_NEURAL,),
        "bias": (_NEURAL,),
        "sampler": (_SAMPLES, _NEURAL),
        "objective": (Need(setting="head", values=("sampled",)), _NEURAL),
        "hidden_size": (Need(setting="model", values=("nnlm", "lstm", *_TOWERS)),),
        "dropout": (
            Need(setting="model", values=("nnlm", "lstm", "sasrec", "sdm", "mind", "youtube-dnn")),
        ),
        "num_layers": (Need(setting="model", values=_TOWERS),),
        "num_interests": (Need(setting="model", values=("mind",)),),
        "num_blocks": (Need(setting="model", values=("sasrec",)),),
        "num_attention_heads": (Need(setting="model", values=("sasrec", "sdm")),),
        "example_age": (Need(setting="model", values=("youtube-dnn",)),),
        "goal_column": (Need(setting="model", values=("airbnb",)),),
        "item_features": (Need(setting="model", values=_FEATURES),),
        "user_features": (
            Need(setting="model", values=("mind", "sdm", "two-tower", "youtube-dnn")),
        ),
        "session_gap": (_SESSIONS,),
        "walks": (Need(setting="model", values=("eges",)),),
        "walk_length": (Need(setting="model", values=("eges",)),),
        "order": (Need(setting="model", values=("n-gram",)),),
        "smoothing": (Need(setting="model", values=("n-gram",)),),
        "subsample": (
            Need(setting="model", values=("auto", "airbnb", "cbow", "item2vec", "skip-gram")),
        ),
        "optimizer": (_BY_GRADIENTS, _NEURAL),
        "learning_rate": (_NEURAL,),
        "batch_size": (_BY_GRADIENTS, _NEURAL),
        "clip_norm": (_BY_GRADIENTS, _NEURAL),
        "weight_decay": (_BY_GRADIENTS, _NEURAL),
        "schedule": (_NEURAL,),
        "warmup_steps": (_NEURAL,),
        "num_samples": (
            _SAMPLES,
            Need(setting="sampler", values=NOT_DRAWN, negated=True),
            _NEURAL,
        ),
        "distortion": (_SAMPLES, Need(setting="sampler", values=("unigram",)), _NEURAL),
        "epochs": (Need(setting="steps", values=(0,)), _NEURAL),
        "steps": (_NEURAL,),
        "window": (Need(setting="model", values=_WINDOWED),),
        "max_history": (
            Need(setting="model", values=("cbow", "skip-gram", "n-gram"), negated=True),
        ),
        "validate_every": (_VALIDATES,),
        "metric": (_VALIDATES,),
        "patience": (_VALIDATES,),
    }
)
"""What each setting needs to have an effect; one that is not here always has one."""


def unused_because(config: Config, name: str) -> str:
    """Return why a setting has no effect in a configuration; empty if it has one.

    >>> unused_because(Config(head="full"), "num_samples")
    "has no effect with head = 'full': it needs head = sampled or importance"
    >>> unused_because(Config(), "num_samples")
    ''
    """
    for need in NEEDS.get(name, ()):
        if not need.is_met(config):
            value = getattr(config, need.setting)
            return f"has no effect with {need.setting} = {value!r}: it needs {need.words}"
    return ""
