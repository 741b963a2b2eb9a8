"""What a model says of a text: how probable its words are, and how it goes on."""

from __future__ import annotations

import torch

from widemax.config import Config
from widemax.data import Sequences
from widemax.data.reading.tokens import split_words
from widemax.models import Model
from widemax.runs.answering.asking import classes_before, words_before
from widemax.runs.answering.generating import generate_ids
from widemax.runs.folder.catalogue import Catalogue
from widemax.validation import check_whole
from widemax.vocabulary import Vocabulary


class Sentences:
    """Reads sentences as a run read its text, and asks its model about them."""

    def __init__(
        self, model: Model, config: Config, vocabulary: Vocabulary, catalogue: Catalogue
    ) -> None:
        self._model, self._config = model, config
        self._vocabulary, self._catalogue = vocabulary, catalogue
        self._tokens = str(config.get("tokens", "")) or None
        self._end = str(config.get("end", ""))
        self._before = classes_before(config, vocabulary)

    @torch.no_grad()
    def scores(self, sentence: str) -> list[tuple[str, float]]:
        """Return each word of a sentence with its log probability given the others."""
        # Here and not above: most questions are none about sentences.
        from widemax.models import CBOW, SkipGram

        model, before = self._model, self._before
        if not (model.causal or isinstance(model, CBOW | SkipGram)):
            raise ValueError(
                f"model {self._config.model} does not score sentences: language models do (n-gram, "
                "nnlm, lstm), and cbow and skip-gram"
            )
        words = self._words(sentence)
        ids = [*before, *self._vocabulary.encode(words).tolist()]
        windows = type(model).windows_of(Sequences.from_lists([ids]), self._config)
        positions = windows.positions
        places = torch.arange(len(ids)) if positions is None else positions
        rows = (places >= len(before)).nonzero()[:, 0]
        if not len(rows):
            raise ValueError(
                "a sentence must have two words: each is predicted from those around it"
            )
        batch = windows.batch(rows)
        log_prob = model.head.log_prob(model.hidden(batch), batch.targets[:, None])
        scored = (places[rows] - len(before)).tolist()
        return [(words[place], float(value)) for place, value in zip(scored, log_prob, strict=True)]

    def continued(self, start: str, *, num_words: int, seed: int) -> list[str]:
        """Return a text that begins with ``start``, each further word drawn from the model."""
        model, unknown = self._model, self._vocabulary.unknown
        if not model.causal:
            raise ValueError(
                f"model {self._config.model} cannot continue a text: language models can (n-gram, "
                "nnlm, lstm), which predict a word from those before it"
            )
        num_words = check_whole("num_words", num_words, 1, 1_000_000)
        generator = torch.Generator().manual_seed(check_whole("seed", seed, 0, 2**63 - 1))
        ids = self._catalogue.ids(split_words(start, self._tokens), strict=True)
        generate_ids(
            model,
            ids,
            length=num_words,
            reach=words_before(model, self._config),
            before=self._before,
            end=self._vocabulary.id_of(self._end) if self._end else None,
            left_out=None if unknown is None else self._vocabulary.id_of(unknown),
            generator=generator,
        )
        return [str(key) for key in self._vocabulary.decode(ids)]

    def _words(self, sentence: str) -> list[str]:
        """Return the words of a sentence as the run read them, its end included."""
        found = split_words(sentence, self._tokens)
        return [*found, self._end] if self._end and found else found
