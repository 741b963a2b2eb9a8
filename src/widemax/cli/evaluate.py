"""``widemax evaluate``: exact metrics on what was held out, and tests of word vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from widemax.cli.progress import waiting

_KS = (5, 10, 20, 50)

if TYPE_CHECKING:
    from widemax.runs.run import Run
    from widemax.runs.source.other_data import OtherData


def evaluate(
    run: RunFolder,
    similarity: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Pairs of words with scores, such as WordSim-353."),
    ] = None,
    analogies: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Questions of four words, in word2vec's format."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="popularity", help="For a log: also show the metrics by popularity of the item."
        ),
    ] = "",
    k: Annotated[
        list[int] | None,
        typer.Option("--k", "-k", min=1, help="For a log: a length of list; repeat for more."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Judge on other data than what was held out: a log or a text."
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option(metavar="FORMAT", help="With --data: what it is; by default its content.")
    ] = "",
    histories: Annotated[
        str,
        typer.Option(
            metavar="auto|run|file",
            help="With --data: whether users are asked from what they had in the run's log, or "
            "from what the file has before their last item; auto: by whose users they are.",
        ),
    ] = "auto",
    checkpoint: CheckpointName = "best",
    json: AsJson = False,
) -> None:
    """Print exact metrics on what was held out of training, or test word vectors."""
    if data is None and (kind or histories != "auto"):
        raise ValueError(f"{'--kind' if kind else '--histories'} is for --data FILE: give both")
    if data is not None and (similarity or analogies):
        raise ValueError("--data is a log or a text, not a test of words: give one of them")
    if by not in ("", "popularity"):
        raise ValueError(f"--by must be popularity, got {by!r}")
    loaded = load_run(run, checkpoint)
    if similarity or analogies:
        _test_words(loaded, similarity or [], analogies or [], as_json=json)
        return
    other = None
    if data is not None:
        with waiting(f"reading {data}"):
            other = loaded.read_other(data, kind=kind, histories=histories)
    if loaded.data.source == "log":
        _evaluate_log(loaded, other, tuple(k or _KS), by_popularity=bool(by), as_json=json)
    elif by or k:
        flag = "--by popularity" if by else "--k"
        raise ValueError(f"{run} was trained on text: {flag} is for logs")
    else:
        _evaluate_text(loaded, other, as_json=json)


def _evaluate_text(run: Run, other: OtherData | None, *, as_json: bool) -> None:
    with waiting(f"evaluating {run.folder}"):
        report: Any = run.evaluate() if other is None else run.evaluate_on(other)
    say_step(run)
    figures = {"step": run.step, "examples": report.examples, **report.metrics()}
    if run.model.causal:
        figures["perplexity"] = perplexity_of(-report.loss)
    if as_json:
        asked = {} if other is None else {"protocol": str(other)}
        typer.echo(strict_json({**asked, **figures}))
        return
    if other is not None:
        typer.echo(printable(other))
    for name, value in list(figures.items())[1:]:  # the step has been said
        typer.echo(
            f"{name:<12} {value:,.4f}" if isinstance(value, float) else f"{name:<12} {value:,}"
        )


def _evaluate_log(
    run: Run,
    other: OtherData | None,
    ks: tuple[int, ...],
    *,
    by_popularity: bool,
    as_json: bool,
) -> None:
    with waiting(f"evaluating {run.folder}"):
        report: Any = (
            run.evaluate_recommendations(ks=ks) if other is None else run.evaluate_on(other, ks=ks)
        )
    say_step(run)
    protocol = run.protocol if other is None else f"{other}; {run.ranking}"
    if other is None:
        run.keep_evaluation(report)
    if not by_popularity:
        report = replace(report, buckets=())
    if as_json:
        counts: dict[str, Any] = {
            "protocol": protocol,
            "step": run.step,
            "users": report.users,
            "targets": report.targets,
        }
        notes = {"looks_ahead": run.looks_ahead} if other is None and run.looks_ahead else {}
        errors = {"standard_errors": report.standard_errors()}
        typer.echo(strict_json({**counts, **report.metrics(), **errors, **notes}))
        return
    typer.echo(f"{printable(protocol)}\n{report}")
    if other is not None and report.unreachable == report.targets:
        typer.echo(
            "note: users had every target before: is this the log that the run was trained on? "
            "evaluate without --data asks for what was held out of it",
            err=True,
        )


def _test_words(run: Run, similarity: list[Path], analogies: list[Path], *, as_json: bool) -> None:
    """Print how the vectors of a run do in tests that people made."""
    from widemax.evaluation import evaluate_analogies, evaluate_similarity

    vectors = run.vectors()
    rows: list[dict[str, Any]] = []
    with waiting(f"testing {run.folder}"):
        for path in similarity:
            found = evaluate_similarity(vectors, path)
            counts = {"pairs": found.pairs, "skipped": found.skipped}
            rows.append({"test": path.name, **found.metrics(), **counts})
        for path in analogies:
            report = evaluate_analogies(vectors, path)
            rows += [
                {
                    "test": path.name,
                    "section": section.name,
                    "accuracy": section.accuracy,
                    "questions": section.questions,
                    "skipped": section.skipped,
                }
                for section in (*report.sections, report.total)
            ]
    say_step(run)
    if as_json:
        typer.echo(strict_json(rows))
        return
    for row in rows:
        figures = "  ".join(
            f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value:,}"
            for name, value in row.items()
            if not isinstance(value, str)
        )
        name = " ".join(value for value in row.values() if isinstance(value, str))
        typer.echo(f"{printable(name):<45}  {figures}")
