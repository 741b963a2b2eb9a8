"""A trained run: loaded from its folder, and asked. The data it was trained on are not needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemax.candidates import TopK
from widemax.data import Sequences, Source, WindowBatch
from widemax.data.reading.searches import words_of
from widemax.data.reading.tokens import split_words
from widemax.data.splitting.holdout import last_values
from widemax.declarations import find
from widemax.declarations.options import shortened
from widemax.declarations.table import load as load_declared
from widemax.evaluation import (
    RankingReport,
    RecommendationReport,
)
from widemax.filters import Filters
from widemax.heads import ScorerHead, class_vectors_of
from widemax.index import Index, save_index
from widemax.index.building import Kind
from widemax.runs.catalogue import Catalogue, Neighbour, ScoredItem
from widemax.runs.chosen_checkpoint import (
    BEST,
    chosen_because,
    identity_of,
    refitted_by,
    trained_checkpoint,
)
from widemax.runs.description import INDEX, check_run, has_grown
from widemax.runs.export import check_destination
from widemax.runs.folder import describe_source, stored_config
from widemax.runs.generating import generate_ids
from widemax.runs.histories import (
    history_of,
    kept_histories,
    max_history,
    unknown_user,
    user_lengths,
)
from widemax.runs.indexes import (
    NUM_QUERIES,
    RECOMMEND,
    SIMILAR,
    BuiltIndex,
    build_indexes,
    searches_by_product,
    similar_head,
    stored_index,
)
from widemax.runs.indexes import search as search_index
from widemax.runs.item_columns import ItemColumns, Mask
from widemax.runs.judging import (
    PROTOCOLS,
    asked_first,
    judge_next,
    judge_users,
    judge_words,
    looks_ahead,
)
from widemax.runs.kept_data import (
    KeptTest,
    histories_of,
    kept_test,
    refit_summary,
    stored_summary,
)
from widemax.runs.kept_evaluation import keep_evaluation
from widemax.runs.map import MapMethod, map_of
from widemax.runs.newcomers import FeatureValue, encode_newcomer, model_for
from widemax.runs.other_data import OtherData, read_other
from widemax.runs.source import read_configured, read_with, split_source
from widemax.runs.stored_vectors import analogy_of, nearest
from widemax.runs.trained_model import load_model
from widemax.training.tracking import read_metrics
from widemax.validation import ABSENT, check_whole
from widemax.vectors import KeyedVectors
from widemax.vocabulary.spelling import Key, key_like

if TYPE_CHECKING:
    from widemax.auditing.examining.examination import Stage
    from widemax.auditing.examining.findings import RunAudit
    from widemax.models import Model


# What no question has: made once, for a tensor costs as much as a step of the model.
_NO_TARGET, _NO_AGE = torch.tensor([ABSENT]), torch.zeros(1)


class _Question(NamedTuple):
    """What a model is asked."""

    model: Model
    batch: WindowBatch
    seen: Tensor


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
    >>> len(run.similar("a", k=2))
    2
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
        self._kept_vectors: Tensor | None = None
        self._kept_lengths: NDArray[Any] | None = None
        # Now, and not when it is asked for: the folder may be trained on meanwhile.
        self._identity = identity_of(self.folder, found)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The validations of the run, oldest first."""
        return read_metrics(self.folder / "metrics.jsonl")

    def vectors(self) -> KeyedVectors:
        """Return the vectors that stand for the keys: of words as input, of items as classes."""
        return KeyedVectors(self.vocabulary.keys, self._vectors())

    def class_vectors(self) -> KeyedVectors:
        """Return the vectors that hidden states are compared with, to be searched by them."""
        if not isinstance(self.model.head, ScorerHead):
            name = type(self.model.head).__name__
            raise ValueError(f"{name} has no class vectors to search: it is no table of them")
        vectors = class_vectors_of(self.model.head).detach().float()
        return KeyedVectors(self.vocabulary.keys, vectors)

    def _vectors(self) -> Tensor:
        """Return the vectors of the keys: those of now, or where it is prepared, those of then."""
        return self._computed_vectors() if self._kept_vectors is None else self._kept_vectors

    def _computed_vectors(self) -> Tensor:
        own = self.model.key_vectors()
        if own is None and isinstance(self.model.head, ScorerHead):
            own = class_vectors_of(self.model.head)
        if own is None:
            # Trees and clusters have no class vectors: those of the classes as input stand in.
            own = getattr(getattr(self.model, "encoder", None), "weight", None)
        if own is None:
            raise ValueError(f"{type(self.model).__name__} has no vectors: it counts")
        return own.detach().float()

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
        own = self.catalogue.ids([key], strict=True)[0]
        left_out = [own, *self.catalogue.ids(leave_out, strict=True)]
        k = check_whole("k", k, 1, 2**31)
        allowed = self.columns.allowed(filters) if filters else None
        index = None if exact else self._similar_index
        if index is not None:
            found = index.search(
                self._vectors()[[own]],
                min(k, len(self.vocabulary)),
                exclude=torch.tensor([left_out]),
                allowed=None if allowed is None else torch.from_numpy(allowed),
            )
            return self.catalogue.neighbours(*_first_row(found))
        return self._nearest(self._vectors()[own].numpy(), k, left_out, allowed)

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
        found = self.recommend_rows(
            history,
            user=user,
            search=search,
            features=features,
            filters=filters,
            leave_out=leave_out,
            k=k,
            include_seen=include_seen,
            exact=exact,
        )
        return self.catalogue.neighbours(*found)

    @torch.no_grad()
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
        asked = self._question(history, user, search, features)
        k = min(check_whole("k", k, 1, 2**31), len(self.vocabulary))
        left_out = asked.seen[:0] if include_seen else asked.seen
        if len(leave_out):
            left_out = torch.cat([left_out, self._ids(leave_out, strict=True)])
        exclude = left_out[None] if left_out.numel() else None
        allowed = torch.from_numpy(self.catalogue.columns.allowed(filters)) if filters else None
        index = None if exact else self._recommend_index
        if index is not None:
            return _first_row(search_index(index, asked.model, asked.batch, k, exclude, allowed))
        if allowed is not None:
            others = (~allowed).nonzero()[:, 0]
            exclude = torch.cat([left_out, others])[None]
        return _first_row(asked.model.topk(asked.batch, k, exclude=exclude))

    def _question(
        self,
        history: Sequence[Key] | None,
        user: Key | None,
        search: str,
        features: Mapping[str, FeatureValue] | None,
    ) -> _Question:
        """Return what the model is asked, with what was seen, and the model that is asked."""
        if history is None and user is None and not search and features is None:
            raise ValueError("give a history or a user")
        if user is not None and features is not None:
            raise ValueError("features are those of somebody new: give them or a user, not both")
        if history is None and user is None:
            history = []
        ids = self._history_of(user) if history is None else self.catalogue.ids(history)
        if search:
            ids = [*ids, *self._typed(search)]
        model, row = self.model, self._row_of(user)
        if features is not None:
            newcomer = encode_newcomer(self.data.user_features, features)
            assert self.data.user_features is not None
            model, row = model_for(self.model, self.data.user_features, newcomer), 0
        # Before the history comes nothing, which some models have a vector of their own for.
        reach = self.reach
        padding = [ABSENT] * (reach if self.model.causal else 1)
        batch = WindowBatch(
            context=torch.tensor([[*padding, *self.before, *ids][-reach:]]),
            targets=_NO_TARGET,
            users=torch.tensor([row]),
            ages=_NO_AGE,
        )
        return _Question(model, batch, torch.tensor(ids, dtype=torch.int64))

    @torch.no_grad()
    def store_queries(
        self,
        history: Sequence[Key] | None = None,
        *,
        user: Key | None = None,
        search: str = "",
        features: Mapping[str, FeatureValue] | None = None,
    ) -> tuple[NDArray[Any], list[int]]:
        """Return what a ``VectorStore`` of the run is searched by, [K, P], and the classes seen."""
        # Here and not above: it imports what imports this.
        from widemax.runs.export.pgvector import query_points

        if not searches_by_product(self.model):
            raise ValueError(
                f"{type(self.model).__name__} does not rank items by products of vectors, so that "
                "a database cannot search them"
            )
        asked = self._question(history, user, search, features)
        hidden = asked.model.hidden(asked.batch)
        return query_points(self, hidden.flatten(0, -2)), asked.seen.tolist()

    def identity(self) -> tuple[str, str]:
        """Return the sha256 of what the run says of itself, and of the parameters that answer."""
        return self._identity

    @torch.no_grad()
    def held_out_hidden(self, count: int) -> Tensor | None:
        """Return hidden states of users who were held out, at most so many; None: none were."""
        asked = self._queries(count)
        return None if asked is None else self.model.hidden(asked)

    @torch.no_grad()
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
        asked = self._question(history, user, search, features)
        ids = self._ids(items, strict=True)
        scores = asked.model.scores(asked.batch)[0, ids].tolist()
        log_probs = asked.model.log_prob(asked.batch)[0, ids].tolist()
        found = self.catalogue.neighbours(ids.tolist(), scores)
        return [
            ScoredItem(
                key=each.key,
                title=each.title,
                score=each.score,
                log_probability=log_prob if math.isfinite(log_prob) else None,
            )
            for each, log_prob in zip(found, log_probs, strict=True)
        ]

    def reasons(self, items: Sequence[Key], history: Sequence[Key]) -> list[Neighbour | None]:
        """Return, for each item, that of the history with the nearest vector: why it may be there.

        The score is the cosine. None where there is no history, or the model has no vectors.
        """
        if not len(items) or not len(history) or not self.has_vectors:
            return [None] * len(items)
        own = self.catalogue.ids(items, strict=True)
        seen = self.catalogue.ids(list(dict.fromkeys(history)))
        found = self.reasons_of_rows(own, seen)
        return [
            each if each is None else self.catalogue.neighbours([each[0]], [each[1]])[0]
            for each in found
        ]

    def reasons_of_rows(
        self, own: Sequence[int], seen: Sequence[int]
    ) -> list[tuple[int, float] | None]:
        """Return the same for class ids, those of the history each once: an id and the cosine."""
        if not len(own) or not len(seen) or not self.has_vectors:
            return [None] * len(own)
        unit = self._unit_vectors([*own, *seen])
        cosines = unit[: len(own)] @ unit[len(own) :].T
        # An item may be in the history itself: another one is its reason.
        cosines[np.equal.outer(own, seen)] = -np.inf
        best = cosines.argmax(axis=1)
        scores = cosines[np.arange(len(own)), best].tolist()
        return [
            (seen[place], score) if math.isfinite(score) else None
            for place, score in zip(best.tolist(), scores, strict=True)
        ]

    def _unit_vectors(self, rows: Sequence[int]) -> NDArray[Any]:
        """Return vectors of some classes, each of length 1, or of 0 if it was."""
        own = self._vectors().numpy()[rows]
        lengths = _lengths(own) if self._kept_lengths is None else self._kept_lengths[rows]
        unit: NDArray[Any] = own / lengths
        return unit

    @property
    def has_users(self) -> bool:
        """Whether the run keeps the histories of users."""
        return self._histories is not None

    def users(self) -> tuple[pl.Series, pl.Series]:
        """Return the users of the log, and how many items each had."""
        if self._histories is None:
            raise ValueError(f"{self.folder} has no users: give a history instead")
        return user_lengths(self._histories)

    @property
    def saved_at(self) -> datetime:
        """When the checkpoint was written that answers."""
        return datetime.fromtimestamp(self._checkpoint.model_file().stat().st_mtime, UTC)

    @property
    def dimension(self) -> int | None:
        """How long the vectors of the classes are; None if there are none."""
        return int(self._vectors().shape[1]) if self.has_vectors else None

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors of the classes, for ``similar``, ``map`` and ``reasons``."""
        try:
            self._vectors()
        except ValueError:
            return False
        return True

    def map(self, method: MapMethod = "pca") -> NDArray[np.float32]:
        """Return a map of the classes, [V, 2] in −1 … 1: the plane in which vectors differ most.

        By "umap" near ones stay near, which takes minutes for 100,000 classes, and the package
        umap-learn. Each is computed once and kept in the folder.
        """
        return map_of(self.folder, self._vectors().numpy(), method)

    @property
    def columns(self) -> ItemColumns:
        """What is known of the items beside their titles, to be shown and to choose by."""
        return self.catalogue.columns

    def prepare(self) -> None:
        """Load and compute now what many questions share: for a process that stays up.

        An index that is not of this model is refused here, and not at the first question. What the
        model learns after this is not in the vectors that ``similar`` compares.
        """
        self.catalogue.prepare()
        _ = self._recommend_index, self._similar_index, self._histories, self.columns
        if self.has_vectors:
            with torch.no_grad():
                self._kept_vectors = self._computed_vectors()
            self._kept_lengths = _lengths(self._kept_vectors.numpy())

    @torch.no_grad()
    def recommend_all(self, *, k: int = 10, include_seen: bool = False) -> Iterator[pl.DataFrame]:
        """Yield tables of ``user``, ``rank``, ``item``, ``score`` and, where known, ``title``."""
        path = self._histories
        if path is None:
            raise ValueError(f"{self.folder} has no users to recommend to")
        k = min(check_whole("k", k, 1, 2**31), len(self.vocabulary))
        for users, histories in histories_of(path):
            rows = torch.arange(len(users))
            features = torch.tensor([self._row_of(user) for user in users])
            asked = WindowBatch(
                context=last_values(histories, rows, self.reach),
                targets=torch.full_like(rows, ABSENT),
                users=features,
                ages=torch.zeros(len(users)),
            )
            longest = max(1, int(histories.lengths.max()))
            exclude = None if include_seen else last_values(histories, rows, longest)
            yield self._table(users, self.model.topk(asked, k, exclude=exclude))

    def _typed(self, text: str) -> list[int]:
        """Return the classes of the words of a search, those that were typed in training."""
        if not self.config.get("search_column", ""):
            raise ValueError("search is for a run that was trained with search_column")
        keys = words_of(pl.Series([text])).explode()
        found = self.vocabulary.encode(keys, missing="mark") if keys[0] is not None else None
        if found is None or not bool((found >= 0).any()):
            raise ValueError(
                f"search must have a word that was typed in training, got {shortened(repr(text))}"
            )
        return found[found >= 0].tolist()

    def _table(self, users: pl.Series, found: TopK) -> pl.DataFrame:
        there = found.ids >= 0
        rows, places = there.nonzero().unbind(1)
        ids = found.ids[there].numpy()
        known = self.catalogue.titles
        titles = {} if known is None else {"title": [known[row] or None for row in ids]}
        return pl.DataFrame(
            {
                "user": users.gather(rows.numpy()),
                "rank": (places + 1).numpy(),
                "item": self.vocabulary.keys.gather(ids),
                "score": found.scores[there].numpy(),
                **titles,
            }
        )

    def history(self, user: Key) -> list[Neighbour]:
        """Return all that a user of the log had, oldest first; scores are 0."""
        ids = self._history_of(user)
        return self.catalogue.neighbours(ids, [0.0] * len(ids))

    def _history_of(self, user: Key | None) -> list[int]:
        path = self._histories
        if path is None:
            raise ValueError(f"{self.folder} has no users: give a history instead")
        found = None if user is None else history_of(path, user)
        if found is None:
            raise unknown_user(path, self.folder, user)
        return found

    @cached_property
    def _histories(self) -> Path | None:
        """The file of the histories, compared with its sha256 once."""
        return kept_histories(self.folder)

    def find(self, text: str, *, k: int = 10) -> list[Neighbour]:
        """Return at most ``k`` items that a text names, the most frequent first; scores are 0.

        A key names its item. Otherwise those are found whose titles, whatever the case of letters,
        are the text, else are it but for brackets at their end, else begin with it, else have it.
        """
        return self.catalogue.find(text, k=k)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The classes as people name them: by key, by title, with what is shown of them."""
        return Catalogue(self.folder, self.vocabulary)

    @property
    def shown(self) -> pl.DataFrame | None:
        """What the run shows of its items, a row for each class: titles, categories, prices."""
        return self.catalogue.shown

    def build_index(
        self, kind: Kind = "auto", *, recall: float = 0.95, memory: int = 0
    ) -> list[BuiltIndex]:
        """Build what ``recommend`` and ``similar`` search in, and say how much of it they find.

        Queries are those of users who were held out; a text has none, and is searched for what is
        similar only. ``memory`` is how many bytes an index may take; 0: half of what is free.
        """
        built = build_indexes(
            self.folder / INDEX, self.model, self._vectors(), self._queries(), kind, recall, memory
        )
        self._forget_indexes()
        return built

    def _forget_indexes(self) -> None:
        for name in ("_recommend_index", "_similar_index"):
            self.__dict__.pop(name, None)

    def change_index(self, *, remove: Sequence[Key] = (), restore: Sequence[Key] = ()) -> int:
        """Never answer with some items, or do so again, and return how many are left out now.

        The index is changed where it lies, without being built again; keys are keys or titles of
        single items. A new index begins with all items.
        """
        gone, back = (self._ids(keys, strict=True) for keys in (remove, restore))
        self._forget_indexes()
        indexes = {RECOMMEND: self._recommend_index, SIMILAR: self._similar_index}
        there = {name: index for name, index in indexes.items() if index is not None}
        if not there:
            raise ValueError(f"{self.folder} has no index yet: build it first (widemax index)")
        for name, index in there.items():
            index.remove(gone)
            index.restore(back)
            save_index(self.folder / INDEX / name, index)
        return max(len(index.removed) for index in there.values())

    def _queries(self, count: int = NUM_QUERIES) -> WindowBatch | None:
        """Return what users had who were held out; None if the model has no use for it."""
        held = self._kept.holdout
        if held is None or not searches_by_product(self.model):
            return None
        return asked_first(held, count, max_history=max_history(self.config))

    @cached_property
    def _recommend_index(self) -> Index | None:
        if not searches_by_product(self.model):
            return None
        assert isinstance(self.model.head, ScorerHead)
        return stored_index(self.folder / INDEX / RECOMMEND, self.model.head)

    @cached_property
    def _similar_index(self) -> Index | None:
        folder = self.folder / INDEX / SIMILAR
        return stored_index(folder, similar_head(self._vectors())) if folder.is_dir() else None

    def _row_of(self, user: Key | None) -> int:
        """Return the row of a user among those with features; -1 if they have none."""
        table = self.data.user_features
        if user is None or table is None:
            return ABSENT
        wanted = key_like(user, whole=table.keys.dtype.is_integer())
        if wanted is None:
            return ABSENT
        rows = (table.keys == wanted).arg_true()
        return int(rows[0]) if len(rows) else ABSENT

    def _ids(self, keys: Sequence[Key], *, strict: bool = False) -> Tensor:
        return torch.tensor(self.catalogue.ids(keys, strict=strict), dtype=torch.int64)

    def _nearest(
        self, query: NDArray[Any], k: int, left_out: list[int], allowed: Mask | None = None
    ) -> list[Neighbour]:
        k = check_whole("k", k, 1, 2**31)
        vectors = self._vectors().numpy()
        ids, scores = nearest(vectors, query, k, left_out=left_out, allowed=allowed)
        return self.catalogue.neighbours(ids.tolist(), scores.tolist())

    @torch.no_grad()
    def score(self, sentence: str) -> list[tuple[str, float]]:
        """Return each word of a sentence with its log probability given the others."""
        from widemax.models import CBOW, SkipGram

        if not (self.model.causal or isinstance(self.model, CBOW | SkipGram)):
            name = type(self.model).__name__
            raise ValueError(
                f"{name} does not score sentences: language models do (n-gram, nnlm, lstm), and "
                "cbow and skip-gram"
            )
        words = self._words(sentence)
        before = self.before
        ids = [*before, *self.vocabulary.encode(words).tolist()]
        windows = type(self.model).windows_of(Sequences.from_lists([ids]), self.config)
        positions = windows.positions
        places = torch.arange(len(ids)) if positions is None else positions
        rows = (places >= len(before)).nonzero()[:, 0]
        if not len(rows):
            raise ValueError(
                "a sentence must have two words: each is predicted from those around it"
            )
        batch = windows.batch(rows)
        hidden = self.model.hidden(batch)
        log_prob = self.model.head.log_prob(hidden, batch.targets[:, None])
        scored = (places[rows] - len(before)).tolist()
        return [(words[place], float(value)) for place, value in zip(scored, log_prob, strict=True)]

    def _words(self, sentence: str) -> list[str]:
        """Return the words of a sentence as the run read them, its end included."""
        found, end = split_words(sentence, self._tokens), str(self.config.get("end", ""))
        return [*found, end] if end and found else found

    @property
    def _tokens(self) -> str | None:
        return str(self.config.get("tokens", "")) or None

    @torch.no_grad()
    def analogy(self, a: Key, b: Key, c: Key, *, k: int = 10) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        ids = self._ids([a, b, c], strict=True)
        return self._nearest(analogy_of(self._vectors()[ids].numpy()), k, ids.tolist())

    @torch.no_grad()
    def generate(self, start: str = "", *, num_words: int = 50, seed: int = 0) -> list[str]:
        """Return a text that begins with ``start``, each further word drawn from the model.

        It ends with the end word of the run, if it has one, or after ``num_words`` words.
        """
        if not self.model.causal:
            name = type(self.model).__name__
            raise ValueError(
                f"{name} cannot continue a text: language models can (n-gram, nnlm, lstm), which "
                "predict a word from those before it"
            )
        num_words = check_whole("num_words", num_words, 1, 1_000_000)
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        ids = self._ids(split_words(start, self._tokens), strict=True).tolist()
        unknown, end = self.vocabulary.unknown, str(self.config.get("end", ""))
        generate_ids(
            self.model,
            ids,
            length=num_words,
            reach=self._reach(),
            before=self.before,
            end=self.vocabulary.id_of(end) if end else None,
            left_out=None if unknown is None else self.vocabulary.id_of(unknown),
            generator=generator,
        )
        return [str(key) for key in self.vocabulary.decode(ids)]

    @property
    def reach(self) -> int:
        """How many of the last classes of a history ``recommend`` reads."""
        return self._reach() if self.model.causal else max_history(self.config)

    @property
    def before(self) -> list[int]:
        """What stands before a sentence: the end of another one, where lines are one stream."""
        end = str(self.config.get("end", ""))
        across = bool(self.config.get("across_lines", False))
        return [self.vocabulary.id_of(end)] if across and end else []

    def _reach(self) -> int:
        """Return how many words before another one the model reads."""
        return type(self.model).windows_of(Sequences.from_lists([[]]), self.config).before

    def read_source(self, path: str | Path | None = None) -> Source:
        """Return the data of the run, read again from where they were, or from ``path``."""
        path = path or self.description["source"]
        if has_grown(self.description):
            return read_with(path, self.config, self.vocabulary, self.folder)
        return read_configured(path, self.config)

    @cached_property
    def _kept(self) -> KeptTest:
        return kept_test(self.folder)

    def _test(self, path: str | Path | None) -> KeptTest:
        """Return what was held out: what the run keeps of it, or of its data in another place."""
        if path is None:
            return self._kept
        source = self.read_source(path)
        if describe_source("", source)["sha256"] != self.description["sha256"]:
            raise ValueError(f"{path} is not what the run was trained on: the content differs")
        split = split_source(self.config, source)
        counts = torch.bincount(split.sequences.values, minlength=len(self.vocabulary))
        return KeptTest.of(split, counts)

    def evaluate(self, path: str | Path | None = None) -> RankingReport:
        """Return exact metrics on examples that had no say in the training or its checkpoint."""
        test = self._test(path)
        if test.holdout is not None:
            return judge_next(self.model, test.holdout, max_history=max_history(self.config))
        if test.windows is None:
            raise ValueError(f"nothing was held out to evaluate on: {self._why_no_test()}")
        return judge_words(self.model, test.windows)

    def evaluate_recommendations(
        self, path: str | Path | None = None, *, ks: Sequence[int] = (5, 10, 20, 50)
    ) -> RecommendationReport:
        """Return how good the recommendations for users are who had no say in the training.

        Each is asked for what they chose next from what they had before, which is not recommended
        again unless ``seen_items`` says so; over the whole catalogue, and by how popular the item
        was.
        """
        test = self._test(path)
        if test.holdout is None:
            raise ValueError(f"no user was held out to be recommended to: {self._why_no_test()}")
        return judge_users(
            self.model,
            test.holdout,
            ks=tuple(ks),
            max_history=max_history(self.config),
            counts=test.counts,
            with_seen=self._ranks_seen,
        )

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
        return read_other(
            path, self.config, self.data, self._histories, kind=kind, histories=histories
        )

    def evaluate_on(
        self, other: OtherData, *, ks: Sequence[int] = (5, 10, 20, 50)
    ) -> RecommendationReport | RankingReport:
        """Return the metrics of the run on other data: of a log as for its users, of a text."""
        if other.windows is not None:
            return judge_words(self.model, other.windows)
        assert other.holdout is not None
        return judge_users(
            self.model,
            other.holdout,
            ks=tuple(ks),
            max_history=max_history(self.config),
            counts=self._kept.counts,
            with_seen=self._ranks_seen,
        )

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
        from widemax.runs.auditing import audit_run, keep_audit

        model, corpus = self._with_proposal()
        found = audit_run(
            model,
            self._counted,
            self._kept,
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
        from widemax.runs.auditing import training_commands

        return training_commands(
            found, self.folder, self.description["source"], self.description["kind"]
        )

    def stored_audit(self) -> dict[str, Any] | None:
        """Return what the last audit found, as JSON holds it; None if there was none."""
        from widemax.runs.auditing import stored_audit

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

    @property
    def has_test(self) -> bool:
        """Whether anything was held out to evaluate on."""
        return self._kept.holdout is not None or self._kept.windows is not None

    @property
    def protocol(self) -> str:
        """What ``evaluate_recommendations`` asks, in words, to be printed beside its figures."""
        return f"{PROTOCOLS[self.config.split]}, {self.ranking}"

    @property
    def ranking(self) -> str:
        """Among which items ``evaluate_recommendations`` ranks, in words."""
        left_out = "" if self._ranks_seen else " but those the user had"
        return f"ranked among all {len(self.vocabulary):,} items{left_out}"

    @property
    def looks_ahead(self) -> str:
        """A warning if what was trained on is later than what is asked for; else empty."""
        shares = self.description.get("later")
        return looks_ahead(*shares) if isinstance(shares, list) and len(shares) == 2 else ""

    @property
    def _ranks_seen(self) -> bool:
        return self.description.get("ranks_seen") is True

    def _why_no_test(self) -> str:
        if self.data.source == "text":
            return "the text is too short, or test_size = 0"
        return "the log has too few users with two items, or test_size = 0"

    def export(self, path: str | Path, *, to: str = "word2vec", table: str = "") -> str:
        """Write the vectors, or what else a format holds of a run, to a file or a folder.

        ``path`` may be the address of a database, and ``table`` the name of a table in it, for
        the formats that are in one. What there is to say of it is returned.
        """
        declaration = find("export", to, argument="to")
        check_destination(declaration, path, table)
        write = load_declared(declaration)
        if "database" in declaration.traits:
            return str(write(path, self, table=table))
        write(path, self if "run" in declaration.traits else self.vectors())
        return ""


def _lengths(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the lengths of vectors [N, D], [N, 1], what is divided by: never 0."""
    squares = np.einsum("nd,nd->n", vectors, vectors)[:, None]
    lengths: NDArray[Any] = np.maximum(np.sqrt(squares), 1e-12)
    return lengths


def _first_row(found: TopK) -> tuple[list[int], list[float]]:
    """Return the classes of the first row and their scores, without the gaps."""
    ids, scores = found.ids[0].tolist(), found.scores[0].tolist()
    if ABSENT not in ids:
        return ids, scores
    there = [place for place, row in enumerate(ids) if row != ABSENT]
    return [ids[place] for place in there], [scores[place] for place in there]
