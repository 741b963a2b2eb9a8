"""What a training changes of the process that it runs in, and puts back."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from widemax.config import Config


@contextmanager
def torch_as_before() -> Iterator[None]:
    """Leave torch's own generator and the number of its threads as they were.

    A training must not reseed the program around it.
    """
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def no_advice_against_the_usual(config: Config, kind: str) -> Iterator[None]:
    """Let no warning advise against what a model is usually trained with, and was measured with."""
    usual = Config(source=kind, model=config.model)
    negatives = ("objective", "sampler", "batch_size")
    with warnings.catch_warnings():
        if all(config.get(name, "") == usual.get(name, "") for name in negatives):
            warnings.filterwarnings("ignore", message="sampled_softmax: a target is expected")
        yield


def use_threads(config: Config) -> None:
    """Let torch use as many threads as are set, if any number is."""
    if config.threads:
        torch.set_num_threads(config.threads)
