"""What each model is usually trained with: defaults that a model brings along."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from widemax.runs.config.settings import Value

KERNEL_MODELS = ("cbow", "item2vec", "skip-gram")
"""The models that the word2vec kernel can train."""

_WORDS: dict[str, Value] = {"dimension": 100, "min_count": 5, "subsample": 1e-4, "epochs": 5}
_KERNEL: dict[str, Value] = {
    "trainer": "kernel",
    "sampler": "unigram",
    "objective": "negative-sampling",
    "num_samples": 5,
    "schedule": "linear",
    "patience": 0,
    # Negative sampling does not learn probabilities: its loss says little about its vectors.
    "metric": "mrr",
}
_RETRIEVAL: dict[str, Value] = {
    "dimension": 64,
    "sampler": "uniform",
    "num_samples": 800,
    "dropout": 0.0,
    "metric": "ndcg@20",
    "epochs": 20,
}
_NEIGHBOURS: dict[str, Value] = {
    "dimension": 64,
    "sampler": "unigram",
    "objective": "negative-sampling",
    "num_samples": 10,
    "metric": "ndcg@20",
    "epochs": 10,
    "optimizer": "adagrad",
    "learning_rate": 0.1,
    "schedule": "linear",
}
_LANGUAGE: dict[str, Value] = {"unknown": "<unk>", "end": "<eos>", "min_count": 2, "bias": True}

PRESETS: Mapping[str, Mapping[str, Value]] = MappingProxyType(
    {
        "cbow": _WORDS,
        "skip-gram": _WORDS,
        "nnlm": {**_LANGUAGE, "max_history": 4, "dimension": 100, "schedule": "linear"},
        "lstm": {**_LANGUAGE, "max_history": 35, "dimension": 128, "schedule": "linear"},
        "youtube-dnn": _RETRIEVAL,
        "mind": _RETRIEVAL,
        "sdm": {**_RETRIEVAL, "num_attention_heads": 2},
        "sasrec": {**_RETRIEVAL, "sampler": "log-uniform", "dropout": 0.3},
        "two-tower": {
            **_RETRIEVAL,
            "sampler": "in-batch",
            "similarity": "cosine",
            "temperature": 0.1,
            "num_layers": 1,
            "hidden_size": 128,
        },
        "item2vec": {
            "dimension": 64,
            "distortion": 0.25,
            "epochs": 20,
            "window": 20,
            "metric": "ndcg@20",
        },
        # Negatives drawn alike leave the popularity of items in the scores, which is wanted here.
        "airbnb": {
            **_NEIGHBOURS,
            "dimension": 32,
            "distortion": 0.0,
            "learning_rate": 0.2,
            "window": 5,
        },
        "eges": {**_NEIGHBOURS, "window": 5, "epochs": 2},
        "n-gram": {"unknown": "<unk>", "end": "<eos>", "min_count": 2},
    }
)
"""By the name of the model; what is not here has the defaults of ``Config``."""


def preset_for(given: Mapping[str, Any]) -> dict[str, Value]:
    """Return the defaults of the model that is given, those for its kernel if nothing forbids it.

    >>> preset_for({"model": "skip-gram"})["trainer"]
    'kernel'
    >>> "trainer" in preset_for({"model": "skip-gram", "objective": "sampled-softmax"})
    False
    >>> preset_for({"model": "next-item"})
    {}
    """
    model = given.get("model")
    preset = dict(PRESETS.get(model, {})) if isinstance(model, str) else {}
    if model in KERNEL_MODELS and not kernel_refusal({**_KERNEL, **given}):
        preset |= _KERNEL
        # As in the program that came with the papers: a bag has one example where pairs are many.
        preset["learning_rate"] = 0.025 if model == "skip-gram" else 0.05
        preset["metric"] = PRESETS[str(model)].get("metric", preset["metric"])
    return preset


def kernel_refusal(values: Mapping[str, Any]) -> str:
    """Return which of some settings the kernel cannot follow; empty if there is none."""
    if values.get("trainer") == "torch":
        return "trainer = 'torch'"
    wanted = {"bias": (False,), "similarity": ("dot",), "temperature": (1, 1.0)}
    wanted |= {"head": ("sampled", "hierarchical")}
    if values.get("head", "sampled") == "sampled":
        wanted |= {"objective": ("negative-sampling",)}
        wanted |= {"sampler": ("log-uniform", "uniform", "unigram")}
    for name, allowed in wanted.items():
        if name in values and values[name] not in allowed:
            return f"{name} = {values[name]!r}"
    return ""
