"""``widemax score``: how probable each word of a sentence is."""

from __future__ import annotations

from typing import Annotated

import typer

from widemax.cli.answers import (
    AsJson,
    CheckpointName,
    RunFolder,
    load_run,
    perplexity_of,
    say_step,
    strict_json,
)
from widemax.cli.printable import printable


def score(
    run: RunFolder,
    sentence: Annotated[
        list[str], typer.Argument(help="The sentence, in quotes or as words.", metavar="SENTENCE")
    ],
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print the log probability of each word of a sentence."""
    loaded = load_run(run, checkpoint)
    words = loaded.score(" ".join(sentence))
    say_step(loaded)
    mean = sum(value for _, value in words) / len(words)
    if json:
        rows = [{"word": word, "log_prob": value} for word, value in words]
        figures = {"mean_log_prob": mean, "perplexity": perplexity_of(mean)}
        typer.echo(strict_json({"words": rows, **figures}))
        return
    for word, value in words:
        typer.echo(f"{value:9.4f}  {printable(word)}")
    typer.echo(f"{mean:9.4f}  mean; perplexity {perplexity_of(mean):,.2f}")
