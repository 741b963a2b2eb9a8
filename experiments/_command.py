"""The processes a person waits for who trains vectors of words: `widemax train` beside gensim."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _harness import Report
from _words import unpack

ROUNDS = 3
"""How often both are timed in turn."""
COMMANDS = {"skip-gram": 6.0, "cbow": 3.0}
"""How many times as quick as gensim's script the whole command has to be."""

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


def whole_command(report: Report, options: argparse.Namespace, folder: Path) -> None:
    """Time the processes a person waits for, from the text to the stored vectors, in turn."""
    text = unpack(options.words, folder)
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for model, least in COMMANDS.items():
        rate = "0.05" if model == "cbow" else "0.025"
        seconds: dict[str, list[float]] = {"ours": [], "gensim": []}
        for turn in range(ROUNDS):
            run = folder / f"{model}-{turn}"
            ours = [
                "-m", "widemax", "train", str(text.path), "--model", model, "--folder", str(run),
                "--learning-rate", rate, "--threads", str(options.threads),
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
        middles = {name: statistics.median(times) for name, times in seconds.items()}
        for name, value in middles.items():
            report.add(f"{model}, the whole command, seconds, {name}", value)
        ratio = middles["gensim"] / middles["ours"]
        report.add(f"{model}, the whole command, times as quick as gensim", ratio, least)
