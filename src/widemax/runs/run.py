"""A trained run: loaded from its folder, and asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import normalize

from widemax.candidates import TopK
from widemax.data import Sequences, Source, WindowBatch
from widemax.data.reading import split_words
from widemax.evaluation import (
    RankingReport,
    RecommendationReport,
    evaluate_ranking,
    evaluate_recommendations,
)
from widemax.heads import ScorerHead, class_vectors_of
from widemax.index import Index
from widemax.index.building import Kind
from widemax.runs.export.exporting import ExportFormat, export_format, export_run
from widemax.runs.features import USERS, stored_features
from widemax.runs.generating import go_on
from widemax.runs.indexing import (
    NUM_QUERIES,
    RECOMMEND,
    SIMILAR,
    BuiltIndex,
    build_indexes,
    search,
    searches_by_product,
    similar_head,
    stored_index,
)
from widemax.runs.loading import load_model, trained_checkpoint
from widemax.runs.reading import read_configured, read_with
from widemax.runs.run_folder import (
    check_run,
    describe,
    has_grown,
    stored_config,
    stored_vocabulary,
)
from widemax.runs.splitting import Split, split_source
from widemax.training.tracking import read_metrics
from widemax.validation import ABSENT, check_whole
from widemax.vectors import KeyedVectors
from widemax.vocabulary import Vocabulary
from widemax.vocabulary.keys import Key, as_keys

_INDEX = "index"


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A key, and how it scored."""

    key: Key
    score: float


class Run:
    """A trained run: its configuration, vocabulary and model, ready for questions.

    Formula: ``similar`` ranks by the cosine of vectors; ``recommend`` by the head's own scores.

    Shapes: answers are lists of ``Neighbour``, best first.

    Cost: loading reads the checkpoint once; an answer is one exact search, O(V·D).

    Reference: none.

    Use when: a run is to be asked, evaluated or exported. Avoid when: it is still to be trained
    (``widemax.train``).

    >>> import tempfile
    >>> import widemax as wm
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "text").write_text("a b c\\nb a c\\n" * 30)
    >>> run = wm.train(folder / "text", wm.Config(epochs=1, dimension=4), folder=folder / "run")
    >>> len(run.similar("a", k=2))
    2
    """

    def __init__(self, folder: str | Path, *, best: bool = True) -> None:
        self.folder = Path(folder)
        self.description = check_run(self.folder)
        self.config = stored_config(self.folder)
        self.vocabulary = stored_vocabulary(self.folder)
        checkpoint = trained_checkpoint(self.folder, best=best)
        self.step = checkpoint.step
        kind = self.description["kind"]
        self.model = load_model(self.folder, checkpoint, self.config, kind, self.vocabulary)

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
        return KeyedVectors(
            self.vocabulary.keys, class_vectors_of(self.model.head).detach().float()
        )

    def _vectors(self) -> Tensor:
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
    def similar(self, key: Key, *, k: int = 10, exact: bool = False) -> list[Neighbour]:
        """Return the ``k`` keys whose vectors have the largest cosine with that of ``key``.

        Where an index was built it is searched, unless ``exact``.
        """
        own = int(self._ids([key], strict=True)[0])
        k = check_whole("k", k, 1, 2**31)
        index = None if exact else self._similar_index
        if index is not None:
            wanted = min(k, len(self.vocabulary))
            found = index.search(self._vectors()[[own]], wanted, exclude=torch.tensor([[own]]))
            return self._neighbours(found)
        vectors = normalize(self._vectors(), dim=-1)
        scores = vectors @ vectors[own]
        scores[own] = -math.inf
        return self._best(scores, k)

    @torch.no_grad()
    def recommend(
        self,
        history: Sequence[Key],
        *,
        k: int = 10,
        include_seen: bool = False,
        user: Key | None = None,
        exact: bool = False,
    ) -> list[Neighbour]:
        """Return the ``k`` classes that best follow a history, oldest first; seen ones left out.

        The features of a ``user`` count where the run has them; nobody else's history is looked
        at, so that a history of today may be given. Where an index was built it is searched,
        unless ``exact``.
        """
        ids = self._ids(history)
        # Before the history comes nothing, which some models have a vector of their own for.
        reach = self._reach() if self.model.causal else self.config.max_history
        padding = torch.full((reach if self.model.causal else 1,), -1)
        context = torch.cat([padding, ids])[-reach:][None]
        exclude = None if include_seen or not len(ids) else ids[None]
        k = min(check_whole("k", k, 1, 2**31), len(self.vocabulary))
        asked = WindowBatch(
            context=context,
            targets=torch.tensor([ABSENT]),
            users=torch.tensor([self._row_of(user)]),
            ages=torch.zeros(1),
        )
        index = None if exact else self._recommend_index
        if index is not None:
            return self._neighbours(search(index, self.model, asked, k, exclude))
        return self._neighbours(self.model.topk(asked, k, exclude=exclude))

    def _neighbours(self, found: TopK) -> list[Neighbour]:
        kept = found.ids[0] >= 0
        keys = self.vocabulary.decode(found.ids[0][kept])
        scores = found.scores[0][kept].tolist()
        return [Neighbour(key=key, score=score) for key, score in zip(keys, scores, strict=True)]

    def build_index(self, kind: Kind = "auto", *, recall: float = 0.95) -> list[BuiltIndex]:
        """Build what ``recommend`` and ``similar`` search in, and say how much of it they find.

        Queries are those of users who were held out; a text has none, and is searched for what is
        similar only.
        """
        return build_indexes(
            self.folder / _INDEX, self.model, self._vectors(), self._histories(), kind, recall
        )

    def _histories(self) -> WindowBatch | None:
        """Return what users had who were held out; None if the model has no use for it."""
        if self.description["kind"] == "text" or not searches_by_product(self.model):
            return None
        held = self._split(None).holdout
        if held is None:
            return None
        rows = torch.arange(min(NUM_QUERIES, len(held)))
        return held.batch(rows, max_history=self.config.max_history)

    @cached_property
    def _recommend_index(self) -> Index | None:
        if not searches_by_product(self.model):
            return None
        assert isinstance(self.model.head, ScorerHead)
        return stored_index(self.folder / _INDEX / RECOMMEND, self.model.head)

    @cached_property
    def _similar_index(self) -> Index | None:
        folder = self.folder / _INDEX / SIMILAR
        return stored_index(folder, similar_head(self._vectors())) if folder.is_dir() else None

    def _row_of(self, user: Key | None) -> int:
        """Return the row of a user among those with features; -1 if he has none."""
        table = stored_features(self.folder, USERS) if user is not None else None
        if table is None:
            return ABSENT
        rows = (table.keys.cast(pl.String) == str(user)).arg_true()
        return int(rows[0]) if len(rows) else ABSENT

    def _ids(self, keys: Sequence[Key], *, strict: bool = False) -> Tensor:
        """Return the ids of keys; text from a command line may stand for whole numbers.

        With ``strict`` a key without a class is an error, even if there is an unknown key.
        """
        if not len(keys):
            return torch.empty(0, dtype=torch.int64)
        given: Any = list(keys)
        values = as_keys(given)
        if self.vocabulary.keys.dtype == pl.Int64 and values.dtype == pl.String:
            plain = values.str.contains(r"^-?[0-9]{1,19}$").all()
            values = values.cast(pl.Int64, strict=False)
            if not plain or values.null_count():
                raise ValueError(f"keys must be whole numbers like those of the run, got {keys!r}")
        known = Vocabulary(self.vocabulary.table) if strict else self.vocabulary
        return known.encode(values)

    def _best(self, scores: Tensor, k: int) -> list[Neighbour]:
        best = scores.topk(min(k, len(scores)))
        kept = best.values > -math.inf
        keys = self.vocabulary.decode(best.indices[kept])
        values = best.values[kept].tolist()
        return [Neighbour(key=key, score=value) for key, value in zip(keys, values, strict=True)]

    @torch.no_grad()
    def score(self, sentence: str) -> list[tuple[str, float]]:
        """Return each word of a sentence with its log probability given the others."""
        words = self._words(sentence)
        ids = self.vocabulary.encode(words)
        sequences = Sequences.from_lists([ids.tolist()])
        windows = type(self.model).windows(
            sequences, max_history=self.config.max_history, window=self.config.window
        )
        if not len(windows):
            raise ValueError("a sentence must have two words: each is told from those around it")
        batch = windows.batch(torch.arange(len(windows)))
        log_prob = self.model.head.log_prob(
            self.model.encode(batch.context), batch.targets[:, None]
        )
        positions = windows.positions
        places = range(len(words)) if positions is None else positions.tolist()
        return [(words[place], float(value)) for place, value in zip(places, log_prob, strict=True)]

    def _words(self, sentence: str) -> list[str]:
        """Return the words of a sentence as the run read them, its end included."""
        found = split_words(sentence, self.config.tokens or None)
        return [*found, self.config.end] if self.config.end and found else found

    @torch.no_grad()
    def analogy(self, a: Key, b: Key, c: Key, *, k: int = 10) -> list[Neighbour]:
        """Return what c is to as a is to b: the keys nearest to b − a + c, of unit vectors."""
        ids = self._ids([a, b, c], strict=True)
        vectors = normalize(self._vectors(), dim=-1)
        scores = vectors @ normalize(vectors[ids[1]] - vectors[ids[0]] + vectors[ids[2]], dim=0)
        scores[ids] = -math.inf
        return self._best(scores, check_whole("k", k, 1, 2**31))

    @torch.no_grad()
    def generate(self, start: str = "", *, num_words: int = 50, seed: int = 0) -> list[str]:
        """Return a text that begins with ``start``, each further word drawn from the model.

        It ends with the end word of the run, if it has one, or after ``num_words`` words.
        """
        if not self.model.causal:
            name = type(self.model).__name__
            raise ValueError(f"{name} tells a word from both sides: it cannot go on with a text")
        num_words = check_whole("num_words", num_words, 1, 1_000_000)
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        ids = self._ids(split_words(start, self.config.tokens or None), strict=True).tolist()
        unknown, end = self.vocabulary.unknown, self.config.end or None
        go_on(
            self.model,
            ids,
            length=num_words,
            reach=self._reach(),
            end=None if end is None else self.vocabulary.id_of(end),
            left_out=None if unknown is None else self.vocabulary.id_of(unknown),
            generator=generator,
        )
        return [str(key) for key in self.vocabulary.decode(ids)]

    def _reach(self) -> int:
        """Return how many words before another one the model reads."""
        history, window = self.config.max_history, self.config.window
        nothing = Sequences.from_lists([[]])
        return type(self.model).windows(nothing, max_history=history, window=window).before

    def read_source(self, path: str | Path | None = None) -> Source:
        """Return the data of the run, read again from where it was, or from ``path``."""
        path = path or self.description["source"]
        if has_grown(self.description):
            return read_with(path, self.config, self.vocabulary, self.folder)
        return read_configured(path, self.config)

    def evaluate(self, path: str | Path | None = None) -> RankingReport:
        """Return exact metrics on examples that had no say in the training or its checkpoint."""
        held = self._split(path).test
        if held is None:
            raise ValueError(f"nothing was held out to evaluate on: {self._why_no_test()}")
        return evaluate_ranking(self.model.log_prob, held)

    def evaluate_recommendations(
        self, path: str | Path | None = None, *, ks: Sequence[int] = (5, 10, 20, 50)
    ) -> RecommendationReport:
        """Return how good the recommendations for users are who had no say in the training.

        Each is asked for his last item from what he had before, which is not recommended again;
        over the whole catalogue, and by how popular the item was.
        """
        split = self._split(path)
        if split.holdout is None:
            raise ValueError(f"no user was held out to be recommended to: {self._why_no_test()}")
        counts = torch.bincount(split.sequences.values, minlength=len(self.vocabulary))
        return evaluate_recommendations(
            self.model.topk,
            split.holdout,
            ks=tuple(k for k in ks if k <= len(self.vocabulary)) or (1,),
            max_history=self.config.max_history,
            counts=counts,
        )

    def _why_no_test(self) -> str:
        if self.description["kind"] == "text":
            return "the text is too short, or test_size = 0"
        return "the log has too few users with two items, or test_size = 0"

    def _split(self, path: str | Path | None) -> Split:
        source = self.read_source(path)
        if not self._is_own(source):
            raise ValueError("the source has another vocabulary than the run: it has changed")
        return split_source(self.config, source)

    def _is_own(self, source: Source) -> bool:
        """Return whether the run can have been trained on a source."""
        if has_grown(self.description):
            # It was read with the vocabulary of the run: only the content can tell.
            return bool(describe("", source)["sha256"] == self.description["sha256"])
        return source.vocabulary.keys.equals(self.vocabulary.keys)

    def export(self, path: str | Path, *, to: ExportFormat = "word2vec") -> None:
        """Write the vectors, or for ``onnx`` the encoder, to a file.

        For ``numpy``, ``projector`` and ``faiss`` the path is that of a folder.
        """
        export_run(self, path, export_format(to))
