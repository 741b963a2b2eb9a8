"""The two calls that do what the command line does: train a run, load one."""

from __future__ import annotations

from pathlib import Path

from widemax.config import Config
from widemax.declarations.options import shown
from widemax.distributed.ranks import joined_ranks, restarted
from widemax.runs.run import Run
from widemax.runs.training.preparing import prepare
from widemax.runs.training.warm_start import Learned


def train(
    source: str | Path,
    config: Config | None = None,
    *,
    folder: str | Path,
    resume: bool = False,
    vectors: Learned | None = None,
    vocabulary_parallel: bool = False,
) -> Run:
    """Train on a source into a folder, and return the run; Ctrl-C saves and raises ``Interrupted``.

    ``source`` is text, Parquet, CSV, RecBole atomic files or pairs, by its content. ``vectors`` are
    ``KeyedVectors``, a run, or the path of a word2vec file or a run, of the dimension of this one:
    the classes whose keys they hold start from them (``run.description["warm_start"]`` says how
    many). ``resume`` continues the run in the folder, and starts it where there is none yet. All
    classes of a run stay classes, whether or not the source has them, and their counts
    are added. Processes that torchrun started train one model together, and with
    ``vocabulary_parallel`` each of them holds a part of its tables.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "log.csv").write_text("user,item\\n" + "ann,tea\\nann,rum\\nbob,tea\\n" * 9)
    >>> run = train(folder / "log.csv", Config(epochs=2, dimension=4), folder=folder / "run")
    >>> [found.key for found in run.recommend(["tea"], k=1)]
    ['rum']
    """
    if not isinstance(source, str | Path):
        raise ValueError(
            f"source must be the path of a file or a database, got {shown(source)}: a table in "
            "memory is written to a file, such as table.write_parquet(path), and its path given"
        )
    if not isinstance(config, Config | None):
        raise ValueError(
            f"config must be a wm.Config, such as Config(epochs=5), got {shown(config)}"
        )
    with joined_ranks(vocabulary_parallel=vocabulary_parallel) as together:
        resume = resume or restarted()
        asked = config or Config()
        prepare(source, asked, folder, resume=resume, vectors=vectors, together=together).run()
        together.wait()
    return Run(folder)


def load(folder: str | Path, *, checkpoint: str | int = "best") -> Run:
    """Return the trained run of a folder, at its "best" or "last" checkpoint, or at a step.

    >>> load("nowhere")
    Traceback (most recent call last):
    ValueError: nowhere is not the folder of a run: there is nothing of that name
    """
    return Run(folder, checkpoint=checkpoint)
