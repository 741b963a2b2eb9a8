"""Whole processes that train vectors of words: how long they take beside gensim, what they hold."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _harness import Report
from _words import DIMENSION, Text, unpack

ROUNDS = 3
"""How often both are timed in turn."""
COMMANDS = {"skip-gram": 6.0, "cbow": 3.0}
"""How many times as quick as gensim's script the whole command has to be."""

MOST_OUTSIDE = 1 / 3
"""How long `widemax train` may take outside its steps, as a part of the time of the steps."""

# Writes how long the steps took. They are watched from where the training begins: what is loaded
# sooner than that is as in the command itself.
TIMED_COMMAND = """
import sys, time
from pathlib import Path
from widemax.cli import train
from widemax.cli.program import program
target, train_run, seconds = Path(sys.argv.pop(1)), train.train_run, [0.0]

def watched(*given, **named):
    from widemax.models import Word2VecSteps
    take = Word2VecSteps.take

    def timed(*step):
        start = time.perf_counter()
        take(*step)
        seconds[0] += time.perf_counter() - start

    Word2VecSteps.take = timed
    train_run(*given, **named)
    target.write_text(str(seconds[0]))

train.train_run = watched
program()
"""

GENSIM_SCRIPT = """
import sys
from gensim.models import Word2Vec
path, target, bag, threads = sys.argv[1], sys.argv[2], sys.argv[3] == "cbow", int(sys.argv[4])
model = Word2Vec(
    corpus_file=path, vector_size=100, window=5, sample=1e-4, min_count=5, negative=5, epochs=5,
    sg=0 if bag else 1, alpha=0.05 if bag else 0.025, workers=threads,
)
model.wv.save(target)
"""


FEW_WORDS = 50_000
"""Words of a text that has next to none: what a process holds for itself."""
MOST_MEMORY = 2.0
"""How many times the encoded text and the two tables a training may hold."""

WATCHED_COMMAND = """
import sys
from pathlib import Path
from widemax.cli import main
target = Path(sys.argv.pop(1))
try:
    main()
finally:  # not getrusage, which begins with what the parent held
    lines = Path("/proc/self/status").read_text().splitlines()
    target.write_text(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def whole_command(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Time the processes a person waits for, from the text to the stored vectors, in turn."""
    text = unpack(options.words, folder)
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for model, least in COMMANDS.items():
        rate = "0.05" if model == "cbow" else "0.025"
        seconds: dict[str, list[float]] = {"ours": [], "gensim": []}
        outside: list[float] = []
        for turn in range(ROUNDS):
            run = folder / f"{model}-{turn}"
            in_steps = folder / f"{model}-{turn}.steps"
            ours = [
                "-c", TIMED_COMMAND, str(in_steps), "train", str(text.path), "--model", model,
                "--folder", str(run), "--learning-rate", rate, "--epochs", "5",
                "--threads", str(options.threads),
            ]  # fmt: skip
            theirs = ["-c", GENSIM_SCRIPT, str(text.path), f"{run}.gensim", model]
            theirs.append(str(options.threads))
            for name, arguments in (("ours", ours), ("gensim", theirs)):
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, *arguments], check=True, env=environment,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
                seconds[name].append(time.perf_counter() - start)
                print(f"{model}, {name}: {seconds[name][-1]:.1f} s", flush=True)
            steps = float(in_steps.read_text())
            outside.append((seconds["ours"][-1] - steps) / steps)
            print(f"{model}, outside the steps / in them: {outside[-1]:.2f}", flush=True)
        middles = {name: statistics.median(times) for name, times in seconds.items()}
        for name, value in middles.items():
            report.add(f"{model}, the whole command, seconds, {name}", value)
        ratio = middles["gensim"] / middles["ours"]
        report.add(f"{model}, the whole command, times as quick as gensim", ratio, least)
        middle = statistics.median(outside)
        name = f"{model}, the whole command, outside its steps / in them"
        report.add(name, middle, MOST_OUTSIDE, "at most")


def memory(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Compare what `widemax train` holds at most, beyond a training on next to no text."""
    (folder / "few").mkdir()
    few, text = unpack(FEW_WORDS, folder / "few"), unpack(options.words, folder)
    encoded = sum(part.nbytes for part in (text.sequences.values, text.sequences.offsets))
    tables = 2 * len(text.vocabulary) * DIMENSION * 4
    report.add("the encoded text (MB)", encoded / 1e6)
    report.add("the two tables (MB)", tables / 1e6)
    for model in COMMANDS:
        alone, held = (
            peak_of_training(each, folder / f"{model}-{name}", model, options.threads)
            for name, each in (("few", few), ("text", text))
        )
        report.add(f"{model}, training on {FEW_WORDS:,} words, peak (MB)", alone / 1e6)
        report.add(f"{model}, training on the text, peak (MB)", held / 1e6)
        ratio = (held - alone) / (encoded + tables)
        name = f"{model}, what the text adds / (encoded text + tables)"
        report.add(name, ratio, MOST_MEMORY, "at most")


def peak_of_training(text: Text, run: Path, model: str, threads: int) -> int:
    """The most bytes a process of `widemax train` held, for one epoch and its validation."""
    target = run.with_suffix(".peak")
    arguments = [
        "train", str(text.path), "--model", model, "--folder", str(run), "--epochs", "1",
        "--threads", str(threads),
    ]  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", WATCHED_COMMAND, str(target), *arguments],
        check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return int(target.read_text()) * 1024
