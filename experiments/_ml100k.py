"""What the experiment on MovieLens 100K shares: the data, training with a watch on valid, judging.

The log ml-100k/ml-100k.inter has users, films and times; what is known of both lies beside it. The
last film of a user is for the test, the one before it for validation, all before are for training:
no model sees more of the log than that when it learns, and each has all that came before when it is
asked. A film's id is its rank by training count. Every ranking is over all films, without those
that the user already had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from _common import DATA, state_of
from widemax.config.config import Config
from widemax.data import FeatureField, Holdout, Source, leave_one_out, read_features, read_source
from widemax.data.reading import recoded
from widemax.data.summary import DataSummary
from widemax.evaluation import evaluate_recommendations
from widemax.models import Model
from widemax.models.building import build_model, build_steps
from widemax.runs.training.plan import plan_of
from widemax.training.fit_steps import FitSteps
from widemax.vocabulary import Vocabulary

LOG = DATA / "ml-100k" / "ml-100k.inter"
KS = (10, 20, 50)
WATCHED = "ndcg@20"

FILM_FIELDS = (FeatureField("release_year", "categorical"), FeatureField("class", "tokens"))
USER_FIELDS = (
    FeatureField("age", "numeric"),
    FeatureField("gender", "categorical"),
    FeatureField("occupation", "categorical"),
)
"""Titles and zip codes are left out: they hardly come back."""

Figures = dict[str, float]


@dataclass(frozen=True, eq=False)
class Films:
    """The parts of the log; a holdout's histories are all that came before its targets."""

    source: Source
    """What is trained on: sequences, classes counted in them, features of films and users."""
    valid: Holdout
    test: Holdout

    @property
    def num_classes(self) -> int:
        return len(self.source.vocabulary)


def load_films() -> Films | None:
    """The data, or None where they are missing."""
    if not LOG.is_file():
        return None
    source = read_source(LOG)
    return films_of(source, torch.zeros(len(source.vocabulary), dtype=torch.bool))


def films_of(whole: Source, left_out: Tensor) -> Films:
    """Split a log, and take films out of its training part, bool [V] in the classes of the log."""
    assert whole.sequences.names is not None
    train = leave_one_out(whole.sequences).train
    train = train.kept(~left_out[train.values])
    counts = torch.bincount(train.values, minlength=len(whole.vocabulary))
    vocabulary = Vocabulary.from_counts(whole.vocabulary.keys, counts)
    class_of = vocabulary.encode(whole.vocabulary.keys)
    split = leave_one_out(recoded(whole.sequences, class_of)[0])
    source = Source(
        kind=whole.kind,
        sequences=recoded(train, class_of)[0],
        vocabulary=vocabulary,
        item_features=read_features(LOG.with_suffix(".item"), vocabulary.keys, fields=FILM_FIELDS),
        user_features=read_features(
            LOG.with_suffix(".user"), whole.sequences.names, fields=USER_FIELDS
        ),
    )
    return Films(source, split.validation, split.test)


@dataclass(frozen=True, eq=False)
class NewFilms:
    """The data without some films in training, and questions whose answer is one of them."""

    films: Films
    asked: Holdout
    """Of the test: users whose last film is a new one."""
    tuning: Holdout
    """What training lost, to choose settings by: each user's new films, from all their others."""


def with_new_films(share: float, seed: int) -> NewFilms:
    """Take a random share of all films out of training."""
    whole = read_source(LOG)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(whole.vocabulary), generator=generator)
    left_out = torch.zeros(len(order), dtype=torch.bool)
    left_out[order[: round(share * len(order))]] = True
    films = films_of(whole, left_out)
    new = left_out[whole.vocabulary.encode(films.source.vocabulary.keys)]
    test = films.test
    rows = new[test.targets.values].nonzero()[:, 0]
    asked = test.chosen(rows)
    return NewFilms(films, asked, _lost(films, new))


def _lost(films: Films, new: Tensor) -> Holdout:
    """The new films [V] that stood among those of each user, as targets from all their others."""
    before = films.valid.histories
    lost = before.kept(new[before.values])
    rows = (lost.lengths > 0).nonzero()[:, 0]
    users = films.valid.users[rows]
    return Holdout(films.source.sequences.chosen(users), lost.chosen(rows), users)


def by_chance(holdout: Holdout, num_classes: int, k: int) -> float:
    """The recall of k films drawn at random from those that a user has not had."""
    return float((k / (num_classes - holdout.histories.lengths)).mean())


def judge(model: Model, holdout: Holdout, max_history: int) -> Figures:
    """Rank all films for each user of a holdout."""
    model.eval()
    report = evaluate_recommendations(model.topk, holdout, ks=KS, max_history=max_history)
    return {name: mean.value for name, mean in report.means.items()}


@dataclass
class History:
    """The watched figure after each epoch; the model is in the best of its states."""

    seconds: float = 0.0
    watched: list[float] = field(default_factory=list)

    @property
    def best_epoch(self) -> int:
        return 1 + max(range(len(self.watched)), key=self.watched.__getitem__)


def train(
    config: Config,
    source: Source,
    watched: Holdout,
    *,
    progress: Callable[[str], object],
) -> tuple[Model, History]:
    """Train as a run of this configuration does, and keep the state that is best on ``watched``.

    Ends early when ``patience`` epochs have brought nothing better; 0 keeps the last state.
    """
    data = DataSummary.of(source)
    torch.manual_seed(config.seed)
    model = build_model(config, data, source.sequences)
    steps = build_steps(config, model, data, source.sequences, source.goals)
    rate = plan_of(config, steps).learning_rate
    history, best_state = History(), state_of(model)
    for epoch in range(1, 2 if isinstance(steps, FitSteps) else config.epochs + 1):
        start = time.perf_counter()
        for step in range((epoch - 1) * steps.per_epoch, epoch * steps.per_epoch):
            steps.take(step, rate(step))
        steps.publish()
        history.seconds += time.perf_counter() - start
        history.watched.append(judge(model, watched, config.max_history)[WATCHED])
        progress(f"epoch {epoch:>3}  {history.seconds:6.1f} s  {history.watched[-1]:.4f}")
        if history.best_epoch == epoch or not config.patience:
            best_state = state_of(model)
        elif epoch - history.best_epoch >= config.patience:
            break
    model.load_state_dict(best_state)
    return model, history
