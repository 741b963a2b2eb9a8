"""The program ``widemax``: its verbs, and how an error is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from widemax.cli.completion import one_of
from widemax.cli.config_options import with_config_options
from widemax.cli.errors import ErrorDisplay
from widemax.cli.waiting import starting
from widemax.runs.config.resolved import ResolvedConfig
from widemax.runs.export.formats import EXPORTS, export_format

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Softmax for wide outputs: train models that choose among very many classes.",
)

INDEX_KINDS = ("auto", "exact", "hnsw", "ivf")

# Each verb imports its work inside: torch takes seconds to load, and --help should not.


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"widemax {version('widemax')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="WIDEMAX_DEBUG", help="Show the traceback of an error."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and stop.")
    ] = False,
) -> None:
    """Take the options that belong to no verb."""
    if isinstance(context.obj, ErrorDisplay):
        context.obj.tracebacks = debug


@app.command()
def demo(
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Compare six output layers with the known truth instead."),
    ] = False,
    num_classes: Annotated[
        int | None, typer.Option(help="Items in the simulated catalogue.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps of each model.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the world, the models and the draws.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the shop and its runs are kept; widemax-demo if not given."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures to this file.")
    ] = None,
) -> None:
    """Simulate a shop, train on its log, evaluate it, and recommend."""
    if compare and folder is not None:
        raise ValueError("--folder has no effect with --compare: nothing is kept")
    with starting():
        from widemax.cli.demo import run_demo
        from widemax.cli.output_layers import compare_output_layers

    if compare:
        compare_output_layers(num_classes=num_classes, steps=steps, seed=seed, json_path=json)
    else:
        run_demo(num_classes=num_classes, steps=steps, seed=seed, folder=folder, json_path=json)


@app.command()
@with_config_options
def train(
    source: Annotated[Path, typer.Argument(help="Text, Parquet, CSV, atomic files or pairs.")],
    folder: Annotated[Path, typer.Option(help="Where the run is kept.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run there.")] = False,
    vectors: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A word2vec file to start from, or the folder of a run."),
    ] = None,
    *,
    resolved: ResolvedConfig,
) -> None:
    """Train on a source; Ctrl-C saves, and --resume goes on exactly where it stopped."""
    with starting():
        from widemax.cli.train import train_verb

    train_verb(source, folder, resolved, resume=resume, vectors=vectors)


RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Exact = Annotated[bool, typer.Option("--exact", help="Do not use the index.")]
Count = Annotated[int, typer.Option("--k", "-k", min=1, help="How many.")]


@app.command()
def evaluate(
    run: RunFolder,
    similarity: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Pairs of words with scores, such as WordSim-353."),
    ] = None,
    analogies: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Questions of four words, as word2vec has them."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="popularity", help="Of a log: also by how popular what was chosen is."
        ),
    ] = "",
    json: AsJson = False,
) -> None:
    """Print exact metrics on what was held out of training, or test the vectors of words."""
    if by not in ("", "popularity"):
        raise ValueError(f"by must be popularity, got {by!r}")
    with starting():
        from widemax.cli.runs import evaluate_verb
        from widemax.cli.words import word_tests

    if similarity or analogies:
        word_tests(run, similarity or [], analogies or [], as_json=json)
    else:
        evaluate_verb(run, by_popularity=bool(by), as_json=json)


@app.command()
def similar(
    run: RunFolder,
    keys: Annotated[list[str], typer.Argument(help="Words or items of the run.")],
    k: Count = 10,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Print the keys most similar to each given one."""
    with starting():
        from widemax.cli.runs import similar_verb

    similar_verb(run, keys, k, exact=exact, as_json=json)


@app.command()
def analogy(
    run: RunFolder,
    a: Annotated[str, typer.Argument(help="man is to ...")],
    b: Annotated[str, typer.Argument(help="... king as ...")],
    c: Annotated[str, typer.Argument(help="... woman is to what?")],
    k: Count = 10,
    json: AsJson = False,
) -> None:
    """Print what C is to as A is to B."""
    with starting():
        from widemax.cli.words import analogy_verb

    analogy_verb(run, a, b, c, k, as_json=json)


@app.command()
def generate(
    run: RunFolder,
    start: Annotated[str, typer.Option(help="How the text begins.")] = "",
    num_words: Annotated[int, typer.Option(min=1, help="Words at most.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    json: AsJson = False,
) -> None:
    """Print a text drawn from a language model (n-gram, nnlm or lstm)."""
    with starting():
        from widemax.cli.words import generate_verb

    generate_verb(run, start, num_words, seed, as_json=json)


@app.command()
def recommend(
    run: RunFolder,
    user: Annotated[str | None, typer.Option(help="A user of the log.")] = None,
    history: Annotated[
        list[str] | None, typer.Option(help="An item; repeat, oldest first.")
    ] = None,
    k: Count = 10,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Print what best follows a history, or the history of a user."""
    if (user is None) == (not history):
        raise ValueError("give either --user or --history")
    with starting():
        from widemax.cli.runs import recommend_verb

    recommend_verb(run, user, history or [], k, exact=exact, as_json=json)


@app.command()
def index(
    run: RunFolder,
    kind: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(INDEX_KINDS)}; auto is exact below 50,000 keys.",
            autocompletion=one_of(INDEX_KINDS),
        ),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(help="Part of the exact answer that is to be found.")
    ] = 0.95,
    json: AsJson = False,
) -> None:
    """Build what recommend and similar search in, and print how much of the truth it finds."""
    with starting():
        from widemax.cli.runs import index_verb

    index_verb(run, kind, recall, as_json=json)


@app.command()
def score(
    run: RunFolder,
    sentence: Annotated[str, typer.Argument(help="Words of the run, in one pair of quotes.")],
    json: AsJson = False,
) -> None:
    """Print the log probability of each word of a sentence."""
    with starting():
        from widemax.cli.runs import score_verb

    score_verb(run, sentence, as_json=json)


@app.command()
def export(
    run: RunFolder,
    path: Annotated[Path, typer.Argument(help="The file, or folder, to write.")],
    to: Annotated[
        str, typer.Option(help=f"One of {', '.join(EXPORTS)}.", autocompletion=one_of(EXPORTS))
    ] = "word2vec",
) -> None:
    """Write the vectors of a run, or its encoder (onnx), for other tools."""
    format = export_format(to)
    with starting():
        from widemax.cli.runs import export_verb

    export_verb(run, path, format)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    json: AsJson = False,
) -> None:
    """List the runs in a folder with their last metrics."""
    with starting():
        from widemax.cli.runs import list_runs

    list_runs(folder, as_json=json)


def main() -> None:
    """Run the program; an error is one line: exit code 2 for a mistake, 1 for a defect."""
    errors = ErrorDisplay()
    try:
        app(obj=errors)
    except KeyboardInterrupt:
        typer.echo("widemax: stopped", err=True)
        sys.exit(130)
    except Exception as error:
        sys.exit(errors.show(error))
