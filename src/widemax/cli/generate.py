"""``widemax generate``: a text drawn from a language model."""

from __future__ import annotations

from typing import Annotated

import typer

from widemax.cli.answers import AsJson, CheckpointName, RunFolder, load_run, say_step, strict_json
from widemax.cli.printable import printable


def generate(
    run: RunFolder,
    start: Annotated[str, typer.Option(help="How the text begins.")] = "",
    num_words: Annotated[int, typer.Option(min=1, help="Words at most.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print a text drawn from a language model (n-gram, nnlm or lstm)."""
    loaded = load_run(run, checkpoint)
    words = loaded.generate(start, num_words=num_words, seed=seed)
    say_step(loaded)
    typer.echo(strict_json(words) if json else printable(" ".join(words)))
