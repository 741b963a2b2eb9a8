"""A trained run: loaded from its folder, and asked. The data it was trained on are not needed.

All that can be asked is here, with what a user must know of it; how it is answered is in the files
that are imported below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.data import Sequences, Source
from widemax.evaluation import RankingReport, RecommendationReport
from widemax.filters import Filters
from widemax.heads import ScorerHead, class_vectors_of
from widemax.index.building import Kind
from widemax.runs.answering.asking import QuestionReader, classes_before, reach_of
from widemax.runs.answering.newcomers import FeatureValue
from widemax.runs.answering.questions import Question, RecommendQuestion
from widemax.runs.answering.recommending import Recommender
from widemax.runs.answering.recommending_to_all import recommend_to_all
from widemax.runs.answering.sentences import Sentences
from widemax.runs.export import export_run
from widemax.runs.folder.catalogue import Catalogue, Neighbour, ScoredItem
from widemax.runs.folder.chosen_checkpoint import (
    BEST,
    chosen_because,
    identity_of,
    refitted_by,
    trained_checkpoint,
)
from widemax.runs.folder.description import check_run
from widemax.runs.folder.histories import UserHistories
from widemax.runs.folder.item_columns import ItemColumns
from widemax.runs.folder.kept_data import refit_summary, stored_summary
from widemax.runs.folder.settings import stored_config
from widemax.runs.folder.trained_model import load_model
from widemax.runs.judging.evaluating import RunTest
from widemax.runs.judging.kept_evaluation import keep_evaluation
from widemax.runs.source.other_data import OtherData, read_other
from widemax.runs.source.reading import read_again
from widemax.runs.source.splitting import split_source
from widemax.runs.vectors.explaining import reasons_for, reasons_for_rows
from widemax.runs.vectors.indexes import NUM_QUERIES, BuiltIndex, RunIndexes, similar_by_index
from widemax.runs.vectors.key_vectors import KeyVectors
from widemax.runs.vectors.map import MapMethod, map_of
from widemax.runs.vectors.nearest import NearestKeys
from widemax.training.tracking import read_metrics
from widemax.vectors import KeyedVectors
from widemax.vocabulary.spelling import Key

if TYPE_CHECKING:
    from widemax.auditing.examining.examination import Stage
    from widemax.auditing.examining.findings import RunAudit
    from widemax.models import Model


class Run:
    """A trained run: its configuration, vocabulary and model, ready for questions.

    Everything it needs is in its folder, which can be moved. ``similar`` ranks by the cosine of
    vectors, ``recommend`` by the head's own scores; answers are lists of ``Neighbour``, best
    first, found by an exact search unless an index was built. ``checkpoint`` is "best" by
    validation (after ``refit``, what that made of it), "last", or a step that was saved; ``step``
    is the one that was taken, and ``chosen`` says why.

    >>> import tempfile
    >>> import widemax as wm
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("a b c\\nb a c\\n" * 30)
    >>> run = wm.train(folder / "text", wm.Config(epochs=1, dimension=4), folder=folder / "run")
    >>> run, len(run.similar("a", k=2))
    (Run('...run', model='cbow', step=...), 2)
    """

    def __init__(self, folder: str | Path, *, checkpoint: str | int = BEST) -> None:
        self.folder = Path(folder)
        self.description = check_run(self.folder)
        self.config = stored_config(self.folder)
        self.data = stored_summary(self.folder)
        self.vocabulary = self.data.vocabulary
        found = trained_checkpoint(self.folder, checkpoint)
        self.step = found.step
        self.chosen = chosen_because(self.folder, found, checkpoint, self.config.metric)
        self._checkpoint = found
        self._refitted = refitted_by(self.folder, found) is not None
        self._counted = refit_summary(self.folder, self.data) if self._refitted else self.data
        self.model = load_model(self.folder, found, self.config, self._counted)
        self._histories = UserHistories(self.folder)
        self._indexes = RunIndexes(self.folder)
        self._test = RunTest(self.folder, self.config, self.data, self.description)
        self._kept_vectors: KeyVectors | None = None
        # Now, and not when it is asked for: the folder may be trained on meanwhile.
        self._identity = identity_of(self.folder, found)

    # What it is

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, model={self.config.model!r}, step={self.step})"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The validations of the run, oldest first."""
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def saved_at(self) -> datetime:
        """When the checkpoint was written that answers."""
        return datetime.fromtimestamp(self._checkpoint.model_file().stat().st_mtime, UTC)

    def identity(self) -> tuple[str, str]:
        """Return the sha256 of what the run says of itself, and of the parameters that answer."""
        return self._identity

    def read_source(self, path: str | Path | None = None) -> Source:
        """Return the data of the run, read again from where they were, or from ``path``."""
        path = path or self.description["source"]
        return read_again(path, self.config, self.description, self.vocabulary, self.folder)

    # What it knows: items and users

    @cached_property
    def catalogue(self) -> Catalogue:
        """The classes as people name them: by key, by title, with what is shown of them."""
        return Catalogue(self.folder, self.vocabulary)

    def find(self, text: str, *, k: int = 10) -> list[Neighbour]:
        """Return at most ``k`` items that a text names, the most frequent first; scores are 0.

        A key names its item. Otherwise those are found whose titles, whatever the case of letters,
        are the text, else are it but for brackets at their end, else begin with it, else have it.
        """
        return self.catalogue.find(text, k=k)

    @property
    def shown(self) -> pl.DataFrame | None:
        """What the run shows of its items, a row for each class: titles, categories, prices."""
        return self.catalogue.shown

    @property
    def columns(self) -> ItemColumns:
        """What is known of the items beside their titles, to be shown and to choose by."""
        return self.catalogue.columns

    @property
    def has_users(self) -> bool:
        """Whether the run keeps the histories of users."""
        return self._histories.path is not None

    def users(self) -> tuple[pl.Series, pl.Series]:
        """Return the users of the log, and how many items each had."""
        return self._histories.lengths()

    def history(self, user: Key) -> list[Neighbour]:
        """Return all that a user of the log had, oldest first; scores are 0."""
        ids = self._histories.of(user)
        return self.catalogue.neighbours(ids, [0.0] * len(ids))

    # What follows a history

    def recommend(
        self,
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        search: str = "",
        features: Mapping[str, FeatureValue] | None = None,
        filters: Filters | None = None,
        leave_out: Sequence[Key] = (),
        k: int = 10,
        include_seen: bool = False,
        exact: bool = False,
    ) -> list[Neighbour]:
        """Return the ``k`` classes that best follow a history, oldest first; seen ones left out.

        The history is of keys, or titles of single items. Without one it is that of a ``user`` of
        the log. Given both, the user's features count, and the history is the one given.
        ``features`` are those of somebody new, for a run with ``user_features``. ``search`` is what
        the user typed just now, for a run with a ``search_column``. ``filters`` name values of
        features that items must have, {"category": ["tea"], "price": ["2..5"]}; ``leave_out`` are
        keys that must not be among the answers. Where an index was built it is searched, unless
        ``exact``, and unless there are searches.
        """
        asked = RecommendQuestion(
            history=history,
            user=user,
            search=search,
            features=features,
            filters=filters,
            leave_out=leave_out,
            k=k,
            include_seen=include_seen,
            exact=exact,
        )
        return self.recommender.neighbours(asked)

    def recommend_rows(
        self,
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        search: str = "",
        features: Mapping[str, FeatureValue] | None = None,
        filters: Filters | None = None,
        leave_out: Sequence[Key] = (),
        k: int = 10,
        include_seen: bool = False,
        exact: bool = False,
    ) -> tuple[list[int], list[float]]:
        """Return what ``recommend`` does as class ids and their scores."""
        asked = RecommendQuestion(
            history=history,
            user=user,
            search=search,
            features=features,
            filters=filters,
            leave_out=leave_out,
            k=k,
            include_seen=include_seen,
            exact=exact,
        )
        return self.recommender.rows(asked)

    def recommend_all(self, *, k: int = 10, include_seen: bool = False) -> Iterator[pl.DataFrame]:
        """Yield tables of ``user``, ``rank``, ``item``, ``score`` and, where known, ``title``."""
        return recommend_to_all(self._reader, k=k, include_seen=include_seen)

    def score_items(
        self,
        items: Sequence[Key],
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        search: str = "",
        features: Mapping[str, FeatureValue] | None = None,
    ) -> list[ScoredItem]:
        """Return how the model scores given items after a history, in their order.

        The arguments are those of ``recommend``; seen items are scored like all others. The log
        probability is that of the model's softmax over the whole catalogue.
        """
        asked = Question(history=history, user=user, search=search, features=features)
        return self.recommender.scores(items, asked)

    def store_queries(
        self,
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        search: str = "",
        features: Mapping[str, FeatureValue] | None = None,
    ) -> tuple[NDArray[Any], list[int]]:
        """Return what a ``VectorStore`` of the run is searched by, [K, P], and the classes seen."""
        asked = Question(history=history, user=user, search=search, features=features)
        return self.recommender.store_queries(asked)

    @property
    def recommender(self) -> Recommender:
        """What answers a ``RecommendQuestion``: for whoever puts it to a database too."""
        return Recommender(self._reader, self._indexes)

    @property
    def _reader(self) -> QuestionReader:
        return QuestionReader(self.model, self.config, self.data, self.catalogue, self._histories)

    @property
    def reach(self) -> int:
        """How many of the last classes of a history ``recommend`` reads."""
        return reach_of(self.model, self.config)

    @property
    def before(self) -> list[int]:
        """What stands before a sentence: the end of another one, where lines are one stream."""
        return classes_before(self.config, self.vocabulary)

    def reasons(self, items: Sequence[Key], history: Sequence[Key]) -> list[Neighbour | None]:
        """Return, for each item, that of the history with the nearest vector: why it may be there.

        The score is the cosine. None where there is no history, or the model has no vectors.
        """
        return reasons_for(items, history, self.catalogue, self._vectors)

    def reasons_of_rows(
        self, own: Sequence[int], seen: Sequence[int]
    ) -> list[tuple[int, float] | None]:
        """Return the same for class ids, those of the history each once: an id and the cosine."""
        return reasons_for_rows(own, seen, self._vectors)

    # What is like an item or a word

    @torch.no_grad()
    def similar(
        self,
        key: Key,
        *,
        filters: Filters | None = None,
        leave_out: Sequence[Key] = (),
        k: int = 10,
        exact: bool = False,
    ) -> list[Neighbour]:
        """Return the ``k`` keys whose vectors have the largest cosine with that of ``key``.

        A title stands for its key where it is that of one item (``find``). ``filters`` name values
        of features that items must have and ``leave_out`` keys that must not be among the answers,
        as of ``recommend``. Where an index was built it is searched, unless ``exact``.
        """
        index = None if exact else self._indexes.to_compare(self._vectors)
        if index is None:
            return self._nearest.similar(key, filters=filters, leave_out=leave_out, k=k)
        vectors, catalogue = self._vectors.table(), self.catalogue
        return similar_by_index(
            index, vectors, catalogue, key, filters=filters, leave_out=leave_out, k=k
        )

    @torch.no_grad()
    def analogy(self, a: Key, b: Key, c: Key, *, k: int = 10) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        return self._nearest.analogy(a, b, c, k=k)

    @property
    def _nearest(self) -> NearestKeys:
        return NearestKeys(self.catalogue, self._vectors.table().numpy())

    def vectors(self) -> KeyedVectors:
        """Return the vectors that stand for the keys: of words as input, of items as classes."""
        return KeyedVectors(self.vocabulary.keys, self._vectors.table())

    def class_vectors(self) -> KeyedVectors:
        """Return the vectors that hidden states are compared with, to be searched by them."""
        if not isinstance(self.model.head, ScorerHead):
            parts = self.config.parts
            named = parts["head" if "head" in parts else "model"]
            raise ValueError(f"{named.kind} {named.name} has no class vectors to search")
        vectors = class_vectors_of(self.model.head).detach().float()
        return KeyedVectors(self.vocabulary.keys, vectors)

    @property
    def _vectors(self) -> KeyVectors:
        """The vectors of the keys: those of now, or where it is prepared, those of then."""
        return self._kept_vectors or KeyVectors(self.model, self.config.model)

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors of the classes, for ``similar``, ``map`` and ``reasons``."""
        return self._vectors.there

    @property
    def dimension(self) -> int | None:
        """How long the vectors of the classes are; None if there are none."""
        return int(self._vectors.table().shape[1]) if self.has_vectors else None

    def map(self, method: MapMethod = "pca") -> NDArray[np.float32]:
        """Return a map of the classes, [V, 2] in −1 … 1: the plane in which vectors differ most.

        By "umap" near ones stay near, which takes minutes for 100,000 classes, and the package
        umap-learn. Each is computed once and kept in the folder.
        """
        return map_of(self.folder, self._vectors.table().numpy(), method)

    # What is said of a text

    def score(self, sentence: str) -> list[tuple[str, float]]:
        """Return each word of a sentence with its log probability given the others."""
        return self._sentences.scores(sentence)

    def generate(self, start: str = "", *, num_words: int = 50, seed: int = 0) -> list[str]:
        """Return a text that begins with ``start``, each further word drawn from the model.

        It ends with the end word of the run, if it has one, or after ``num_words`` words.
        """
        return self._sentences.continued(start, num_words=num_words, seed=seed)

    @property
    def _sentences(self) -> Sentences:
        return Sentences(self.model, self.config, self.vocabulary, self.catalogue)

    # Faster answers

    def prepare(self) -> None:
        """Load and compute now what many questions share: for a process that stays up.

        An index that is not of this model is refused here, and not at the first question. What the
        model learns after this is not in the vectors that ``similar`` compares.
        """
        self.catalogue.prepare()
        vectors = KeyVectors(self.model, self.config.model)
        if vectors.there:
            vectors.keep()
            self._kept_vectors = vectors
        self._indexes.to_recommend(self.model)
        self._indexes.to_compare(vectors)
        _ = self._histories.path, self.columns

    def build_index(
        self, kind: Kind = "auto", *, recall: float = 0.95, memory: int = 0
    ) -> list[BuiltIndex]:
        """Build what ``recommend`` and ``similar`` search in, and say how much of it they find.

        Queries are those of users who were held out; a text has none, and is searched for what is
        similar only. ``memory`` is how many bytes an index may take; 0: half of what is free.
        """
        return self._indexes.build(
            self.model,
            self._vectors,
            self._test.queries(self.model, NUM_QUERIES),
            kind,
            recall=recall,
            memory=memory,
        )

    def change_index(self, *, remove: Sequence[Key] = (), restore: Sequence[Key] = ()) -> int:
        """Never answer with some items, or do so again, and return how many are left out now.

        The index is changed where it lies, without being built again; keys are keys or titles of
        single items. A new index begins with all items.
        """
        gone, back = (self.catalogue.ids(keys, strict=True) for keys in (remove, restore))
        return self._indexes.change(self.model, self._vectors, remove=gone, restore=back)

    # How good it is

    def evaluate(self, path: str | Path | None = None) -> RankingReport:
        """Return exact metrics on examples that had no say in the training or its checkpoint."""
        return self._test.rank_next(self.model, path)

    def evaluate_recommendations(
        self, path: str | Path | None = None, *, ks: Sequence[int] = (5, 10, 20, 50)
    ) -> RecommendationReport:
        """Return how good the recommendations for users are who had no say in the training.

        Each is asked for what they chose next from what they had before, which is not recommended
        again unless ``seen_items`` says so; over the whole catalogue, and by how popular the item
        was.
        """
        return self._test.recommend(self.model, path, ks)

    def keep_evaluation(self, report: RecommendationReport) -> None:
        """Keep what ``evaluate_recommendations`` found in the folder, to be shown by ``serve``."""
        counts = {"step": self.step, "users": report.users, "targets": report.targets}
        keep_evaluation(self.folder, {"protocol": self.protocol, **counts, **report.metrics()})

    def read_other(self, path: str | Path, *, kind: str = "", histories: str = "auto") -> OtherData:
        """Return what a file asks that the run was not trained on, in the classes of the run.

        ``histories`` says from what users of a log are asked: "run", what they had in its log, for
        all items of the file; "file", the file itself, for the last item of each; "auto" takes the
        first where most users of the file are users of the run.
        """
        kept = self._histories.path
        return read_other(path, self.config, self.data, kept, kind=kind, histories=histories)

    def evaluate_on(
        self, other: OtherData, *, ks: Sequence[int] = (5, 10, 20, 50)
    ) -> RecommendationReport | RankingReport:
        """Return the metrics of the run on other data: of a log as for its users, of a text."""
        return self._test.on_other(self.model, other, ks)

    @torch.no_grad()
    def held_out_hidden(self, count: int) -> Tensor | None:
        """Return hidden states of users who were held out, at most so many; None: none were."""
        asked = self._test.queries(self.model, count)
        return None if asked is None else self.model.hidden(asked)

    @property
    def has_test(self) -> bool:
        """Whether anything was held out to evaluate on."""
        return self._test.exists

    @property
    def protocol(self) -> str:
        """What ``evaluate_recommendations`` asks, in words, to be printed beside its figures."""
        return self._test.protocol

    @property
    def ranking(self) -> str:
        """Among which items ``evaluate_recommendations`` ranks, in words."""
        return self._test.ranking

    @property
    def looks_ahead(self) -> str:
        """A warning if what was trained on is later than what is asked for; else empty."""
        return self._test.looks_ahead

    # How well it was trained

    def audit(
        self,
        *,
        draws: int = 200,
        examples: int | None = None,
        num_samples: Sequence[int] = (),
        tolerance: float = 0.03,
        seed: int = 0,
        keep: bool = True,
        progress: Stage | None = None,
    ) -> RunAudit:
        """Measure how far the gradients of the output layer are from those of the exact softmax.

        On ``examples`` of what was held out (None: some hundred), each trained on ``draws`` times;
        nothing is changed. Where a bias is found, the cheapest remedies are tried. ``num_samples``
        are numbers of samples against which bias and variance are shown. What was found is kept in
        the folder, unless ``keep`` is false.
        """
        # Here and not above: most questions are none about gradients.
        from widemax.runs.judging.auditing import audit_run, keep_audit

        model, corpus = self._with_proposal()
        found = audit_run(
            model,
            self._counted,
            self._test.kept,
            self.config,
            corpus=corpus,
            step=self.step,
            draws=draws,
            examples=examples,
            num_samples=num_samples,
            tolerance=tolerance,
            seed=seed,
            progress=progress,
        )
        if keep:
            keep_audit(self.folder, found, self.training_commands(found))
        return found

    def training_commands(self, found: RunAudit) -> list[str]:
        """Return the commands that train with what an audit found to help most."""
        from widemax.runs.judging.auditing import training_commands

        return training_commands(
            found, self.folder, self.description["source"], self.description["kind"]
        )

    def stored_audit(self) -> dict[str, Any] | None:
        """Return what the last audit found, as JSON holds it; None if there was none."""
        from widemax.runs.judging.auditing import stored_audit

        return stored_audit(self.folder)

    def _with_proposal(self) -> tuple[Model, Sequences | None]:
        """Return the model with its sampler; one that is made from the data is made again."""
        from widemax.models.building import UnknownProposal

        if not any(isinstance(each, UnknownProposal) for each in self.model.modules()):
            return self.model, None
        split = split_source(self.config, self.read_source())
        corpus = split.final if self._refitted and split.final is not None else split.sequences
        model = load_model(self.folder, self._checkpoint, self.config, self._counted, corpus)
        return model, corpus

    # For other tools

    def export(self, path: str | Path, *, to: str = "word2vec", table: str = "") -> str:
        """Write the vectors, or what else a format holds of a run, to a file or a folder.

        ``path`` may be the address of a database, and ``table`` the name of a table in it, for
        the formats that are in one. What there is to say of it is returned.
        """
        return export_run(path, self, to=to, table=table)
