"""Skip-gram and CBOW through gradients, as any head can be trained, beside the kernel."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from _harness import Report
from _words import (
    DIMENSION,
    EPOCHS,
    KINDS,
    SUBSAMPLE,
    WINDOW,
    Kind,
    Text,
    Trained,
    middle,
    told,
    train_ours,
    unpack,
)
from widemax.encoders import BagEncoder
from widemax.heads import SampledHead
from widemax.models import keep_probability, start_small
from widemax.objectives import Objective, negative_sampling, sampled_softmax
from widemax.optim import RowAdagrad
from widemax.sampling import LogUniformSampler, Sampler, UnigramSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps
from widemax.training.schedules import learning_rate_at
from widemax.vocabulary import Vocabulary

TORCH_WORDS, GRADIENT_BATCH, GRADIENT_RATE = 2_000_000, 4096, 0.1


class GradientRun(NamedTuple):
    """A head trained by gradients, and the kind of the kernel that it is held against."""

    name: str
    kind: Kind
    objective: Objective
    sampler: Callable[[Vocabulary], Sampler]
    num_samples: int


def by_counts(vocabulary: Vocabulary) -> Sampler:
    return UnigramSampler(len(vocabulary), vocabulary.counts, distortion=0.75, per_example=True)


def by_rank(vocabulary: Vocabulary) -> Sampler:
    return LogUniformSampler(len(vocabulary), unique=True)


GRADIENT_RUNS = [
    GradientRun("skip-gram, negatives", KINDS[0], negative_sampling, by_counts, 5),
    GradientRun("CBOW, negatives", KINDS[1], negative_sampling, by_counts, 5),
    GradientRun("CBOW, sampled softmax", KINDS[1], sampled_softmax, by_rank, 256),
]


def train_by_gradients(run: GradientRun, text: Text, *, seed: int) -> Trained:
    """Train with Adagrad, a rate for each word, which falls linearly to 0."""
    torch.manual_seed(seed)
    vocabulary = text.vocabulary
    head = SampledHead(
        TableScorer(len(vocabulary), DIMENSION, bias=False, sparse=True),
        run.sampler(vocabulary),
        objective=run.objective,
        num_samples=run.num_samples,
    )
    encoder = BagEncoder(len(vocabulary), DIMENSION)
    model = run.kind.model(encoder, head, keep=keep_probability(vocabulary.counts, SUBSAMPLE))
    start_small(model)
    windows = run.kind.model.windows(text.sequences, max_history=1, window=WINDOW)
    optimizer = RowAdagrad(model.parameters(), lr=GRADIENT_RATE)
    steps = GradientSteps(model, optimizer, windows, batch_size=GRADIENT_BATCH, seed=seed)
    total = EPOCHS * steps.per_epoch
    rate = learning_rate_at("linear", GRADIENT_RATE, total_steps=total)
    start = time.perf_counter()
    for step in range(total):
        steps.take(step, rate(step))
    seconds = time.perf_counter() - start
    return told(f"{run.name}: gradients", text, seconds, model.key_vectors())


def by_gradients(report: Report, options: argparse.Namespace, folder: Path) -> None:
    text = unpack(options.words or TORCH_WORDS, folder)
    print(f"{text.sequences}, {len(text.vocabulary):,} different words", flush=True)
    kernel = {
        kind.name: middle(
            [
                train_ours(kind, text, threads=options.threads, seed=seed)
                for seed in range(options.own_seeds)
            ]
        )
        for kind in KINDS[:2]
    }
    for name, trained in kernel.items():
        report.add(f"{name}, WordSim-353, the kernel on fewer words", trained.quality.wordsim)
    for run in GRADIENT_RUNS:
        found = train_by_gradients(run, text, seed=0).quality.wordsim
        least = kernel[run.kind.name].quality.wordsim - 0.02
        report.add(f"{run.name}, WordSim-353, by gradients", found, least)
