"""What a person at the terminal waits for: processor time of whole commands, from their start.

Each command is a process of its own, run in turn with ``import numpy`` and ``import torch``, which
are what a bar is measured in: seconds depend on the machine, multiples of an import hardly do. The
first ``train`` runs from a copy of the package that has compiled nothing yet, the second after it.

    python benchmarks/startup.py --check
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import widemax as wm
from _harness import Report, command_line

PACKAGE = Path(wm.__file__).parent
WORD = "word7"


def run(command: list[str], **environment: str) -> tuple[float, str]:
    """Return the processor time of a process and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.stdout


def widemax(*words: object) -> list[str]:
    return ["-m", "widemax", *map(str, words)]


def train(source: Path, folder: Path, **settings: object) -> Path:
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    run(widemax("train", source, "--folder", folder, *flags))
    return folder


def write_words(path: Path, num_words: int) -> Path:
    """Write a text in which each of so many words stands five times or more."""
    rng = np.random.default_rng(0)
    frequent = np.minimum(rng.zipf(1.3, num_words * 5), num_words) - 1
    ids = rng.permutation(np.concatenate([np.repeat(np.arange(num_words), 5), frequent]))
    lines = np.array_split(np.char.add("word", ids.astype(str)), max(1, len(ids) // 20))
    path.write_text("\n".join(" ".join(line) for line in lines) + "\n")
    return path


def write_log(path: Path) -> Path:
    rng = np.random.default_rng(0)
    pairs = [f"u{user},i{item}" for user in range(500) for item in rng.integers(0, 2000, 20)]
    path.write_text("user,item\n" + "\n".join(pairs) + "\n")
    return path


def check_answers(folder: Path) -> None:
    """Exit if the neighbours that the command prints are not those of all cosines."""
    printed = json.loads(run(widemax("similar", folder, WORD, "--json"))[1])
    vectors = wm.load(folder).vectors()
    unit = torch.nn.functional.normalize(vectors.vectors.double(), dim=1)
    cosines = unit @ unit[vectors.keys.index_of(WORD)]
    best = [vectors.keys[row] for row in cosines.argsort(descending=True)[1:11].tolist()]
    if [each["key"] for each in printed] != best:
        sys.exit(f"similar printed {printed}, the best are {best}")


def cold_and_warm(folder: Path) -> tuple[float, float]:
    """Return the time of a first ``train`` on a small text, all compiled, and of a second."""
    source = folder / "copy"
    shutil.copytree(PACKAGE, source / "widemax", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(folder / "kernels")}
    text = write_words(folder / "small.txt", 1000)
    first, second = (
        run(widemax("train", text, "--folder", folder / name), **environment)[0]
        for name in ("first", "second")
    )
    return first, second


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command")
    parser.add_argument("--words", type=int, default=100_000, help="words of the run of vectors")
    arguments = parser.parse_args()
    report = Report(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"model": "skip-gram", "dimension": 100, "epochs": 1}
        words = train(write_words(folder / "text", arguments.words), folder / "words", **settings)
        check_answers(words)
        log = write_log(folder / "log.csv")
        towers, items = (
            train(log, folder / model, model=model, epochs=1) for model in ("two-tower", "item2vec")
        )
        commands = {
            "import numpy": ["-c", "import numpy"],
            "import torch": ["-c", "import torch"],
            "similar": widemax("similar", words, WORD),
            "analogy": widemax("analogy", words, "word1", "word2", "word3"),
            "runs": widemax("runs", folder),
            "recommend, item2vec": widemax("recommend", items, "--user", "u3"),
            "recommend, two-tower": widemax("recommend", towers, "--user", "u3"),
        }
        spent: dict[str, list[float]] = {each: [] for each in commands}
        for _ in range(arguments.repeats):
            for each, command in commands.items():
                spent[each].append(run(command)[0])
        seconds = {each: statistics.median(values) for each, values in spent.items()}
        seconds["train, first"], seconds["train, second"] = cold_and_warm(folder)
    for each, value in seconds.items():
        report.add(f"{each}: seconds of processor time", value)
    numpy_import, torch_import = seconds["import numpy"], seconds["import torch"]
    for each, most in {"similar": 5.5, "analogy": 5.5, "runs": 5.5}.items():
        ratio = seconds[each] / numpy_import
        report.add(f"{each}, in imports of numpy", ratio, most, "at most")
    for each, most in {
        "recommend, item2vec": 0.5,
        "recommend, two-tower": 1.5,
        "train, first": 20.0,
        "train, second": 4.5,
    }.items():
        ratio = seconds[each] / torch_import
        report.add(f"{each}, in imports of torch", ratio, most, "at most")
    beyond = seconds["recommend, two-tower"] - torch_import
    report.add("recommend, two-tower: seconds beyond the import of torch", beyond, 0.7, "at most")
    report.finish()


if __name__ == "__main__":
    main()
