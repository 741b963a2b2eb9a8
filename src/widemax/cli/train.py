"""``widemax train``: a run is trained, and where it stands is shown."""

from __future__ import annotations

import errno
import logging
import math
import os
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from widemax.cli.answers import path_of, place_argument
from widemax.cli.config_options import ConfigCommand, Settings, with_config_options
from widemax.cli.printable import printable
from widemax.cli.progress import compiling_shown, starting, waiting
from widemax.config import Config, ResolvedConfig, show_config
from widemax.config.resolution import is_ordered
from widemax.config.settings import all_options
from widemax.config.toml import toml_value
from widemax.declarations import find
from widemax.declarations.table import loaded_plugins

if TYPE_CHECKING:
    from widemax.runs.training.training import Training
    from widemax.stores.addresses import Place
    from widemax.training.loop import Progress as TrainingProgress
    from widemax.training.together import Together

_FINISHED = {
    "steps": "finished",
    "patience": "stopped, because the metric did not improve any more,",
    "time": "stopped, because the time budget was used up,",
}

_ERRORS = ("standard_error", "behind_best", "behind_best_error")
"""What is kept of a validation besides its metrics."""

_MUCH_NEW = 0.1
"""The share of the test's targets that nobody chose in training from which that is said."""

COMMAND = ConfigCommand
"""What the verb is made of, instead of typer's own."""

__all__ = ["COMMAND", "train", "train_run"]


@with_config_options
def train(
    source: Annotated[
        Path,
        typer.Argument(
            parser=place_argument,
            metavar="SOURCE",
            help="A text, or a log: Parquet, CSV, JSON lines, RecBole's atomic files, pairs or "
            "lists; or a database, DuckDB's file or postgresql://host/name, with --query.",
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="FOLDER", help="The folder of the run.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --folder, or start it.")
    ] = False,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Start from a word2vec file, or from the folder of another run."
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print every setting and where its value comes from, then stop."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="With --print-config: print it as JSON.")
    ] = False,
    rank_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1.0,
            help="Started by torchrun: after how long a process that does not answer has failed.",
        ),
    ] = 45.0,
    vocabulary_parallel: Annotated[
        bool,
        typer.Option(
            "--vocabulary-parallel",
            help="Started by torchrun: divide the rows of the tables over the processes, too.",
        ),
    ] = False,
    *,
    settings: Settings,
) -> None:
    """Train on a source; Ctrl-C saves, and --resume continues exactly where it stopped.

    Several processes train one model where torchrun starts them: torchrun --nproc-per-node 4 -m
    widemax train ...
    """
    if json and not print_config:
        raise ValueError("--json says how --print-config prints: give both")
    if folder is None and not print_config:
        raise ValueError("give --folder: where the run is kept")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"folder must be a folder, and {folder} is a file")
    from widemax.runs.folder.description import holds_run

    if folder is None or not holds_run(folder):
        _check_there(source, settings)
    with ExitStack() as beside:
        if folder is not None and not print_config and not holds_run(folder):
            beside.enter_context(_reading_ahead(source, settings))
        with starting():
            from widemax.distributed.ranks import joined_ranks, launched, restarted
            from widemax.runs.folder.creating import check_free
            from widemax.runs.source.configured import kind_of

        if vocabulary_parallel and not launched():
            raise ValueError(
                "--vocabulary-parallel divides tables over processes, and this is one: start "
                "several by torchrun --nproc-per-node N -m widemax train ..."
            )
        joined = joined_ranks(timeout=rank_timeout, vocabulary_parallel=vocabulary_parallel)
        with joined as together, _notes_once(together):
            # What is wrong with the folder is said before the source is looked for.
            found = (resume or restarted()) and folder is not None and holds_run(folder)
            resume = together.decided(found)
            if folder is not None and resume:
                asked = _resumed(folder, settings)
            else:
                if folder is not None and not print_config and together.writes:
                    check_free(folder)
                asked = settings.resolved(kind_of(source, settings.given()))
            if not print_config and folder is not None:
                train_run(
                    source, folder, asked.config, resume=resume, vectors=vectors, together=together
                )
            elif together.writes:
                typer.echo(show_config(asked, as_json=json))


def _reading_ahead(source: Place, settings: Settings) -> AbstractContextManager[None]:
    """Begin to read a text while torch is loaded; what is no text, or wrong, is left for later."""
    from widemax.data.reading import recognise
    from widemax.data.reading.ahead import reading_ahead
    from widemax.data.reading.tables import TEXT

    with suppress(ValueError, OSError):
        given = settings.given()
        if isinstance(source, Path) and (given.get("kind") or recognise(source)) == TEXT:
            config = settings.resolved(TEXT).config
            # A regular expression needs torch itself, and a cache may have it all already.
            others = (config.tokens, config.cache, config.validation_file, config.test_file)
            if not any(others) and config.split != "files":
                return reading_ahead(source, None, config.end or None)
    return nullcontext()


def _check_there(source: Place, settings: Settings) -> None:
    """Raise for a file that is not there, before torch is loaded: the likeliest mistake."""
    # A pattern names files, and what is split by files may be what their names begin with.
    named = isinstance(source, Path) and not has_magic(str(source))
    if named and settings.given().get("split") != "files" and not os.path.lexists(source):
        raise ValueError(f"{source} cannot be read: {os.strerror(errno.ENOENT)}")


@contextmanager
def _notes_once(together: Together) -> Iterator[None]:
    """Let the process that writes say what is worth a note, and no other say it again."""
    log = logging.getLogger("widemax")
    level = log.level
    with warnings.catch_warnings():
        if not together.writes:
            warnings.simplefilter("ignore")
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)


def _resumed(folder: Path, settings: Settings) -> ResolvedConfig:
    """Return the configuration of a run; a setting that differs from what is given is refused."""
    from widemax.runs.folder.settings import ADJUSTABLE, check_same_settings, stored_config

    given = settings.given()
    check_same_settings(folder, given, lambda name: all_options()[name].flag)
    adjusted = {name: given[name] for name in ADJUSTABLE if name in given}
    config = stored_config(folder).changed(**adjusted)
    origins = dict.fromkeys(config.values, f"run {folder}") | dict.fromkeys(adjusted, "flag")
    return ResolvedConfig(config=config, origins=origins, given=frozenset(given))


def train_run(
    source: Place,
    folder: Path,
    config: Config,
    *,
    resume: bool,
    vectors: Path | None = None,
    together: Together | None = None,
) -> None:
    """Train on a source into a folder, showing where it stands."""
    from widemax.runs.training.preparing import prepare
    from widemax.training.loop import Interrupted
    from widemax.training.together import ALONE

    together = together or ALONE
    display = _Display(quiet=not together.writes)
    with waiting(f"reading {source}", in_logs=together.writes) as doing:
        training = prepare(
            source,
            config,
            folder,
            resume=resume,
            vectors=vectors,
            together=together,
            on_step=display.step,
            on_validation=display.validation,
            on_refit=display.refit,
            on_range_test=lambda step: doing(f"trying learning rates, step {step:,}"),
        )
    display.training(training, vectors=vectors)
    if resume:
        display.say(f"resumed at step {training.loop.progress.step:,}")
    total, done = training.loop.plan.total_steps, training.loop.progress.step
    with display.showing(total, done), compiling_shown(display.compiling):
        try:
            progress = training.run()
        except Interrupted:
            plugins = [word for name in loaded_plugins() for word in ("--plugin", name)]
            asked = ["train", str(source), "--folder", str(folder), "--resume"]
            command = ["widemax", *plugins, *asked]
            display.say(f"saved; continue with: {shlex.join(command)}")
            raise KeyboardInterrupt from None
    steps = f"{progress.step:,} step{'s' if progress.step != 1 else ''}"
    why = "" if training.refits else _why(training.config, progress, total)
    display.say(f"{_FINISHED[progress.finished]} after {steps}{why}: {folder}")
    together.wait()
    # Patience that is spent is no length, and what is fitted at once has none.
    lengths = progress.finished != "patience" and "epochs" in training.config.options
    if resume and progress.step == done and lengths:
        display.say(
            f"nothing was left to do: {_longer(training.config, progress, total)} would go on"
        )
        return
    if _has_left_its_index(training, progress, done):
        display.say(f"the index is of a checkpoint before: widemax index {folder} builds it anew")
    for line in _closing(training, progress):
        display.say(line)


def _has_left_its_index(training: Training, progress: TrainingProgress, done: int) -> bool:
    """Return whether an index was there, and what answers now was trained since step ``done``."""
    from widemax.runs.folder.description import INDEX

    is_newer = training.refits or (progress.chosen_step or progress.step) > done
    return is_newer and (training.folder / INDEX).is_dir()


def _closing(training: Training, progress: TrainingProgress) -> Iterator[str]:
    """Yield what it did not beat, how sure the chosen checkpoint is, and what more time brings."""
    from widemax.training.stopping import rise
    from widemax.training.tracking import read_metrics

    config, metric = training.config, training.config.metric
    rows = read_metrics(training.folder / "metrics.jsonl")
    rows = [row for row in rows if row.get(metric) is not None]
    sign = -1 if metric == "loss" else 1
    if not rows:
        return
    floor = training.loop.plan.floor
    if floor is not None and (found := max(row[metric] for row in rows)) < floor:
        yield f"popularity is ahead: {metric} {floor:.4f} in validation, and this run {found:.4f}"
    if len(rows) < 2:
        return
    best, last = max(rows, key=lambda row: sign * row[metric]), rows[-1]
    if best["step"] != last["step"] and last.get("behind_best_error"):
        kept = f"; kept is step {progress.chosen_step:,}" if progress.chosen_step else ""
        yield (
            f"best {metric} {best[metric]:.4f} at step {best['step']:,}, the last is "
            f"{last['behind_best']:.4f} ± {last['behind_best_error']:.4f} behind{kept}"
        )
    share = rise([(row["step"], sign * row[metric]) for row in rows])
    # What patience has ended has not risen; a last fit has no curve of its own.
    if share is None or progress.finished == "patience":
        return
    yield (
        f"{metric} still {'fell' if sign < 0 else 'rose'}, by {share:.1%} over the last third: "
        f"{_longer(config, progress, training.loop.plan.total_steps)} would go on"
    ).replace("%", " %")


def _why(config: Config, progress: TrainingProgress, total: int) -> str:
    """Return what set the number of steps at which a training ended; the rest says it itself."""
    if progress.finished != "steps" or "epochs" not in config.options or progress.step > total:
        return ""  # what is fitted at once has no length, and what was resumed may be past it
    if config.steps:
        return f", as {config.options['steps'].flag} {config.steps} says"
    return f", all {config.epochs:,} epochs" if config.epochs > 1 else ", one epoch"


def _chosen_optimizer(training: Training) -> str:
    """Return which optimiser "auto" stands for; empty where one was named, or there is none."""
    from widemax.training.gradients.steps import AUTO, chosen_optimizer

    if training.config.get("optimizer", "") != AUTO:
        return ""
    name = chosen_optimizer(AUTO, len(training.source.vocabulary))
    return f", optimizer {name} (auto)"


def _decided(training: Training) -> str:
    """Return what "auto" stands for where the data decided; empty where all was named."""
    automatic = training.description.get("automatic", {})
    return "".join(f", {name} {toml_value(value)} (auto)" for name, value in automatic.items())


def _longer(config: Config, progress: TrainingProgress, total: int) -> str:
    """Return the flags that make a training go on for as long again."""
    name = "time_budget" if progress.finished == "time" else "steps" if config.steps else "epochs"
    times = 2 * max(1, -(-progress.step // max(total, 1)))
    return f"--resume {config.options[name].flag} {times * config.values[name]:g}"


def _order(training: Training) -> str:
    """Return in words in which order the items of a user were read."""
    source, columns = training.source, training.source.columns
    order = "in the order of the file"
    if columns is not None and source.sequences.times is not None:
        order = f"in the order of their times ({columns.time})"
    asked, form = training.config.get("item_order", "auto"), find("format", source.kind)
    if is_ordered(asked, form.traits):
        return order
    return f"{order}, which is taken to mean nothing (--item-order kept says otherwise)"


def _few_asked(training: Training) -> str:
    """Return a warning that the split asks too few users in validation or test, or ""."""
    from widemax.runs.judging.protocol import asks_few

    config, split = training.config, training.split
    if config.split != "time":
        return ""
    parts = (split.validation, config.validation_size), (split.test, config.test_size)
    asked = [(0 if part is None else len(part), size) for part, size in parts]
    return asks_few(asked, len(training.source.sequences))


def _new_items(training: Training) -> str:
    """Return a note that much of the test asks for items that nobody chose before, or ""."""
    from widemax.data import Holdout
    from widemax.runs.judging.protocol import asks_new

    test = training.split.test
    if not isinstance(test, Holdout) or not len(test):
        return ""
    chosen = training.source.vocabulary.counts[test.targets.values]
    share = float((chosen == 0).double().mean())
    return asks_new(share) if share >= _MUCH_NEW else ""


class _Display:
    """A bar and live figures on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.live = self.console.is_terminal and not quiet
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(
            *columns, TimeRemainingColumn(), console=self.console, disable=not self.live
        )
        self.doing = "training"
        self.task = self.bar.add_task(self.doing, total=None)
        self.refit_total = self.refit_epoch = 0
        self.metric = ""
        self.shown_at = (0, 0.0)  # at which step, after how many seconds, the last line was shown

    def say(self, text: str) -> None:
        self.console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def training(self, training: Training, *, vectors: Path | None) -> None:
        """Say what is about to be trained."""
        source, parts = training.source, training.config.parts
        self.metric = training.config.metric
        self.shown_at = training.loop.progress.step, training.loop.progress.seconds
        what = "words" if source.kind == "text" else "interactions"
        names = ", ".join(f"{slot} {part.name}" for slot, part in parts.items())
        self.say(
            f"{source.kind}: {len(source.vocabulary):,} classes, "
            f"{len(training.split.sequences.values):,} {what} to train on"
        )
        self.say(f"{names}{_chosen_optimizer(training)}{_decided(training)}")
        for whose, table in (("items", source.item_features), ("users", source.user_features)):
            if table is not None:
                columns = [each.field for each in table.schema.fields]
                fields = ", ".join(f"{each.name} ({each.kind})" for each in columns)
                self.say(f"features of {whose}: {fields}")
        if source.kind != "text":
            self.say(f"items of a user: {_order(training)}")
        from widemax.runs.judging.protocol import looks_ahead

        if later := training.description.get("later"):
            self.say(looks_ahead(*later))
        if skipped := training.split.skipped_users:
            users = f"{skipped:,} user{'s' if skipped != 1 else ''}"
            self.say(f"{users} cannot be asked in the test: nothing of theirs came before it")
        for note in (_few_asked(training), _new_items(training)):
            if note:
                self.say(note)
        if (floor := training.loop.plan.floor) is not None:
            self.say(f"to beat: popularity, {training.config.metric} {floor:.4f} in validation")
        # Empty or "usual with ..." unless what was asked for is beyond the usual trainer.
        if (why := training.config.origins.get("trainer", "")).startswith("because"):
            self.say(f"trainer {training.config.trainer}, {why}")
        if tested := training.description.get("range_test"):
            self.say(
                f"learning rate {training.config.learning_rate:g}, by a range test of "
                f"{tested['steps']:,} steps: half of the fall was done at {tested['halfway']:.2g}"
            )
        if training.warm is not None:
            found, classes = training.warm.found, training.warm.classes
            self.say(f"{found:,} of {classes:,} classes start from {vectors}")

    def compiling(self, what: str) -> None:
        """Show beside the bar what is compiled, and when it is, what is being done again."""
        self.bar.update(self.task, description=what or self.doing)

    def showing(self, total: int, done: int) -> Progress:
        self.bar.update(self.task, total=total, completed=done)
        return self.bar

    def refit(self, training: Training, chosen: TrainingProgress) -> None:
        """Say that the last fit begins, and show how far it is from now on."""
        assert training.split.final is not None
        total, done = training.loop.plan.total_steps, training.loop.progress.step
        ended = _FINISHED[chosen.finished].rstrip(",")
        why = _why(training.config, chosen, chosen.step)
        self.say(f"{ended} after {chosen.step:,} steps{why}; chosen was {chosen.chosen_step:,}")
        self.say(
            f"refit on training and validation data, {len(training.split.final.values):,} in all, "
            f"for {total:,} steps{f', resumed at step {done:,}' if done else ''}"
        )
        self.refit_total, self.refit_epoch = total, training.loop.steps.per_epoch
        self.doing = "refit"
        self.bar.update(self.task, description=self.doing, total=total, completed=done)

    def step(self, progress: TrainingProgress) -> None:
        if self.live:
            self.bar.update(self.task, completed=progress.step)
        # Where nothing is validated nothing else says that it goes on.
        elif self.refit_total and progress.step % self.refit_epoch == 0:
            self.say(f"refit: step {progress.step:,} of {self.refit_total:,}")

    def validation(self, progress: TrainingProgress, metrics: Mapping[str, float]) -> None:
        shown = [(name, value) for name, value in metrics.items() if name not in _ERRORS]
        figures = "  ".join(
            f"{name} {value:.4f}{self._error(name, metrics)}" for name, value in shown
        )
        (step, seconds), self.shown_at = self.shown_at, (progress.step, progress.seconds)
        seconds = progress.seconds - seconds
        # Since the last line: what the first step compiles must not slow down all that follow.
        rate = (progress.step - step) / seconds if seconds > 0 else 0.0
        self.say(f"step {progress.step:,}  {figures}  {rate:,.{rate < 10:d}f} steps/s")

    def _error(self, name: str, metrics: Mapping[str, float]) -> str:
        """Return the standard error of the metric that decides, to stand behind it."""
        # Of one user it is infinite: there is no other to compare with.
        if name != self.metric or not math.isfinite(metrics.get("standard_error", math.inf)):
            return ""
        return f" ± {metrics['standard_error']:.4f}"
