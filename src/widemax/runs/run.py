"""A trained run: loaded from its folder, and asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import normalize

from widemax.data import Sequences, Source
from widemax.data.tokens import split_words
from widemax.evaluation import RankingReport, evaluate_ranking
from widemax.heads import ScorerHead, class_vectors_of
from widemax.keys import Key, as_keys
from widemax.models import Model
from widemax.runs.building import build_model
from widemax.runs.exporting import ExportFormat, export_format, export_run
from widemax.runs.reading import read_configured
from widemax.runs.run_folder import check_run, stored_config, stored_vocabulary
from widemax.runs.training import split_source
from widemax.training.checkpoint_files import Checkpoint
from widemax.training.checkpoints import CheckpointStore
from widemax.training.tracking import read_metrics
from widemax.validation import check_whole
from widemax.vectors import KeyedVectors

_ALWAYS_ALLOWED = 2**22


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
        checkpoint = self._checkpoint(best)
        self.step = checkpoint.step
        self.model = self._load(checkpoint)

    def _checkpoint(self, best: bool) -> Checkpoint:
        store = CheckpointStore(self.folder)
        # On one line, so that a damaged checkpoint is told of once.
        found = (store.best(skip_damaged=True) if best else None) or store.latest(skip_damaged=True)
        if found is None:
            raise ValueError(f"{self.folder} has no checkpoint yet: it has not been trained")
        return found

    def _load(self, checkpoint: Checkpoint) -> Model:
        tensors = checkpoint.model_tensors()
        # Before anything is allocated: every model has a vector of each class at least once.
        stored, needed = sum(map(Tensor.numel, tensors.values())), self._least_numbers()
        if needed > max(stored, _ALWAYS_ALLOWED):
            raise self._not_fitting(checkpoint, f"it has {stored:,} numbers of {needed:,} or more")
        model = self._empty_model()
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise self._not_fitting(checkpoint, " ".join(str(error).split())) from error
        return model.eval()

    def _least_numbers(self) -> int:
        return len(self.vocabulary) * self.config.dimension

    def _not_fitting(self, checkpoint: Checkpoint, reason: str) -> ValueError:
        return ValueError(
            f"{checkpoint.folder / 'model.safetensors'} does not fit the config.toml and "
            f"vocabulary.parquet of its run: {reason}"
        )

    def _empty_model(self) -> Model:
        nothing = Sequences.from_lists([])
        kind = self.description["kind"]
        source = Source(kind=kind, sequences=nothing, vocabulary=self.vocabulary)
        before = torch.get_rng_state()
        try:
            return build_model(self.config, source)
        except ValueError as error:
            raise ValueError(f"{self.folder / 'config.toml'}: {error}") from error
        finally:
            torch.set_rng_state(before)  # loading a run must not reseed the program around it

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
    def similar(self, key: Key, *, k: int = 10) -> list[Neighbour]:
        """Return the ``k`` keys whose vectors have the largest cosine with that of ``key``."""
        own = int(self._ids([key])[0])
        vectors = normalize(self._vectors(), dim=-1)
        scores = vectors @ vectors[own]
        scores[own] = -math.inf
        return self._best(scores, check_whole("k", k, 1, 2**31))

    @torch.no_grad()
    def recommend(
        self, history: Sequence[Key], *, k: int = 10, include_seen: bool = False
    ) -> list[Neighbour]:
        """Return the ``k`` classes that best follow a history, oldest first; seen ones left out."""
        ids = self._ids(history)
        context = ids[-self.config.max_history :][None]
        if not context.shape[1]:
            context = torch.full((1, 1), -1)
        exclude = None if include_seen or not len(ids) else ids[None]
        k = min(check_whole("k", k, 1, 2**31), len(self.vocabulary))
        top = self.model.head.topk(self.model.encode(context), k, exclude=exclude)
        kept = top.ids[0] >= 0
        keys = self.vocabulary.decode(top.ids[0][kept])
        scores = top.scores[0][kept].tolist()
        return [Neighbour(key=key, score=score) for key, score in zip(keys, scores, strict=True)]

    def _ids(self, keys: Sequence[Key]) -> Tensor:
        """Return the ids of keys; text from a command line may stand for whole numbers."""
        if not len(keys):
            return torch.empty(0, dtype=torch.int64)
        given: Any = list(keys)
        values = as_keys(given)
        if self.vocabulary.keys.dtype == pl.Int64 and values.dtype == pl.String:
            plain = values.str.contains(r"^-?[0-9]{1,19}$").all()
            values = values.cast(pl.Int64, strict=False)
            if not plain or values.null_count():
                raise ValueError(f"keys must be whole numbers like those of the run, got {keys!r}")
        return self.vocabulary.encode(values)

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
        ids = self._ids([a, b, c])
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
        ids = self._ids(split_words(start, self.config.tokens or None)).tolist()
        end = self.vocabulary.encode([self.config.end])[0] if self.config.end else -1
        reach = max(self.config.max_history, self.config.order)
        while len(ids) < num_words and (not ids or ids[-1] != end):
            context = torch.tensor([([-1] * reach + ids)[-reach:]])
            weights = self._next_word(context)
            ids.append(int(torch.multinomial(weights, 1, generator=generator)))
        return [str(key) for key in self.vocabulary.decode(ids)] if ids else []

    def _next_word(self, context: Tensor) -> Tensor:
        """Return P(y | context) of every class, the unknown word left out, [V]."""
        windows = type(self.model).windows(
            Sequences.from_lists([[0]]),
            max_history=self.config.max_history,
            window=self.config.window,
        )
        log_prob = self.model.head.log_prob(self.model.encode(context[:, -windows.before :]))[0]
        probability = log_prob.double().exp()
        if self.config.unknown in self.vocabulary:
            probability[self.vocabulary.encode([self.config.unknown])] = 0
        return probability

    def read_source(self, path: str | Path | None = None) -> Source:
        """Return the data of the run, read again from where it was, or from ``path``."""
        return read_configured(path or self.description["source"], self.config)

    def evaluate(self, path: str | Path | None = None) -> RankingReport:
        """Return exact metrics on the examples that were held out of training."""
        source = self.read_source(path)
        if source.vocabulary.keys.to_list() != self.vocabulary.keys.to_list():
            raise ValueError("the source has another vocabulary than the run: it has changed")
        held = split_source(self.config, source).validation
        if held is None:
            raise ValueError("validation_size is 0: nothing was held out to evaluate on")
        return evaluate_ranking(self.model.head, self.model.encode, held)

    def export(self, path: str | Path, *, to: ExportFormat = "word2vec") -> None:
        """Write the vectors, or for ``onnx`` the encoder, to a file.

        For ``numpy``, ``projector`` and ``faiss`` the path is that of a folder.
        """
        export_run(self, path, export_format(to))
