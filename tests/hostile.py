"""Hostile input made at random, and kills at random moments, against the whole program.

    python -m tests.hostile --cases 1000 --seed 0
    python -m tests.hostile --kills 100 --seed 0

A case spoils a log, a text, a configuration, a file of vectors, the folder of a run or the flags of
a verb, and runs the verb in a process of its own with limited time and memory. It must succeed, or
end with exit code 2 and one line that is no traceback; what it only reads must stay as it was. A
kill ends ``train``, ``export``, ``index``, ``report`` or ``audit`` by SIGKILL; what was there
before, or what comes after it, must be whole. Each failure is printed with its number, so that
``--only NUMBER`` repeats a case.
"""

import argparse
import gzip
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from tests.kills import Kills
from tests.runs.run_processes import finish, start, warm_up
from widemax.config.settings import all_options
from widemax.declarations import find, names
from widemax.runs.judging.kept_evaluation import EVALUATION

# No database is at hand to be hostile to.
FILE_EXPORTS = [name for name in names("export") if "database" not in find("export", name).traits]
# To trace a model takes many seconds, in which no file is touched.
KILLED_EXPORTS = [name for name in FILE_EXPORTS if name != "onnx"]

SECONDS = 60.0
"""How long a case may take before Ctrl-C is pressed; again as long to end after that."""

MEMORY = 3 * 2**30
"""Bytes that a case may take beside torch and the program."""

SMALL = ("--epochs", "1", "--dimension", "4", "--validation-size", "5")
SNIPPETS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n\n", b'"', b"'", b",,,,",
    b"\t\t", b";", b"nan", b"inf", b"-1", b"1e309", b"99999999999999999999",
    b"18446744073709551615", b"1.5", b"",
    b"\x1b[2J", "\u202e\u0000".encode(), b"<img src=x onerror=alert(1)>", b"../../etc/passwd",
    b"\x1f\x8b", b"PAR1", b"[[", b"{" * 200, b"a" * 70_000, b"= = =", b"user_id:token", b"#", b"\\",
)  # fmt: skip
VALUES = (
    "0", "1", "-1", "2", "7", "0.5", "1e-9", "1e309", "nan", "inf", "-inf", "", " ", "true", "x",
    "auto", "9223372036854775808", "99999999999999999999999", "1_000", "0x10", "../..", "\x1b[31m",
    "[bold]", "log-uniform", "full", "sampled", "adam", "a" * 3000, "é", "\ud800",
    "None", "[]", "{}", "1,2",
)  # fmt: skip


def spoilt(data, draw):
    """Return bytes with one to four changes."""
    for _ in range(draw.randint(1, 4)):
        place, width = draw.randint(0, len(data)), draw.choice([1, 1, 3, 20, 400])
        how = draw.randrange(6)
        if how == 0:
            data = data[:place] + draw.choice(SNIPPETS) + data[place:]
        elif how == 1:
            data = data[:place] + data[place + width :]
        elif how == 2:
            data = data[: place + width] + data[place:]
        elif how == 3:
            data = data[:place] + draw.randbytes(width) + data[place + width :]
        elif how == 4:
            data = data[:place]
        else:
            data = data[:place] + draw.choice(SNIPPETS) + data[place + width :]
    return data


def log_bytes(kind, folder):
    """Return a sound log of one of the formats."""
    draw = random.Random(1)
    rows = [
        (f"u{user}", f"i{int(25 * draw.random() ** 2)}", 1_700_000_000 + 60 * place)
        for user in range(20)
        for place in range(8)
    ]
    users, items, times = zip(*rows, strict=True)
    table = pl.DataFrame({"user": users, "item": items, "time": times})
    if kind == "parquet":
        table.write_parquet(folder / "sound")
        return (folder / "sound").read_bytes()
    if kind == "csv":
        return table.write_csv().encode()
    if kind == "tsv":
        return table.write_csv(separator="\t", include_header=False).encode()
    if kind == "atomic":
        typed = {"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"}
        return table.rename(typed).write_csv(separator="\t").encode()
    if kind == "pairs":
        return "".join(f"{user} {item}\n" for user, item, _ in rows).encode()
    if kind == "lists":
        lines = (" ".join(str((7 * user + k) % 25) for k in range(8)) for user in range(20))
        return "".join(f"{user} {line}\n" for user, line in enumerate(lines)).encode()
    return b"the cat sat on the mat\nthe dog lay on the rug\n" * 20


class Workshop:
    """Sound things to spoil: a log, a text, and a run on each."""

    def __init__(self, folder):
        self.folder = folder
        self.log, self.text = folder / "log.csv", folder / "text"
        self.log.write_bytes(log_bytes("csv", folder))
        self.text.write_bytes(log_bytes("text", folder))
        self.runs = {"log": folder / "run-log", "text": folder / "run-text"}
        for name, run in self.runs.items():
            source = getattr(self, name)
            code, said = finish(["train", source, "--folder", run, *SMALL], folder / "said")
            assert code == 0, said
            code, said = finish(["index", run], folder / "said")
            assert code == 0, said

    def case(self, number, seed, here):
        """Return the arguments of a case, what must stay as it is, and what kind it is."""
        draw = random.Random(f"{seed}.{number}")
        kind = draw.choice(["log", "log", "config", "vectors", "run", "run", "flags", "flags"])
        arguments, kept = getattr(self, f"_{kind}")(draw, here)
        return [str(each) for each in arguments], kept, kind

    def _log(self, draw, here):
        data = log_bytes(
            draw.choice(["csv", "tsv", "atomic", "parquet", "pairs", "lists", "text"]), here
        )
        data = spoilt(data, draw)
        if draw.random() < 0.15:
            data = gzip.compress(data)
            data = spoilt(data, draw) if draw.random() < 0.5 else data
        (here / "source").write_bytes(data)
        flags = ["--kind", draw.choice(["csv", "text", "pairs"])] if draw.random() < 0.1 else []
        return ["train", here / "source", "--folder", here / "run", *SMALL, *flags], [
            here / "source"
        ]

    def _config(self, draw, here):
        data = spoilt((self.runs["log"] / "config.toml").read_bytes(), draw)
        (here / "config.toml").write_bytes(data)
        given = ["train", self.log, "--folder", here / "run", "--config", here / "config.toml"]
        return given, [here / "config.toml", self.log]

    def _vectors(self, draw, here):
        rows = "".join(f"{word} 1 .5 -2 1e-3\n" for word in ("the", "cat", "dog", "mat", "rug"))
        (here / "vectors").write_bytes(spoilt(f"5 4\n{rows}".encode(), draw))
        given = [
            "train",
            self.text,
            "--folder",
            here / "run",
            *SMALL,
            "--vectors",
            here / "vectors",
        ]
        return given, [here / "vectors"]

    def _run(self, draw, here):
        kind = draw.choice(["log", "text"])
        run = here / "run"
        shutil.copytree(self.runs[kind], run)
        path = draw.choice(sorted(path for path in run.rglob("*") if path.is_file()))
        data = path.read_bytes()
        how = draw.randrange(8)
        path.unlink()
        if how < 5:
            path.write_bytes(spoilt(data, draw))
        elif how == 5:
            path.mkdir()
        elif how == 6:
            os.mkfifo(path)
        # else it is gone
        asked = {
            "log": [
                ["recommend", run, "--user", "u3"], ["recommend", run, "--history", "i1"],
                ["similar", run, "i1"], ["evaluate", run], ["runs", here],
                ["export", run, here / "out", "--to", draw.choice(FILE_EXPORTS)],
            ],
            "text": [
                ["similar", run, "cat"], ["analogy", run, "cat", "dog", "mat"], ["evaluate", run],
                ["runs", here], ["export", run, here / "out", "--to", draw.choice(FILE_EXPORTS)],
            ],
        }[kind]  # fmt: skip
        changing = [["index", run], ["train", getattr(self, kind), "--folder", run, "--resume"]]
        if draw.random() < 0.3:
            return draw.choice(changing), [getattr(self, kind)]
        return draw.choice(asked), [run]

    def _flags(self, draw, here):
        options = all_options()
        flags = []
        for _ in range(draw.randint(1, 4)):
            option = options[draw.choice(sorted(options))]
            chosen = draw.choice([*VALUES, *map(str, option.choices or ()), str(option.default)])
            flags += [option.flag, chosen]
        source = draw.choice([self.log, self.text])
        return ["train", source, "--folder", here / "run", *flags], [source]


def digest(path):
    """Return what identifies a file or a folder with all its files."""
    whole = hashlib.sha256()
    for each in [path] if not path.is_dir() else sorted(path.rglob("*")):
        # A lock is nothing but a lock, a pipe has no content, and evaluate keeps what it found.
        if each.is_file() and each.name not in ("lock", EVALUATION):
            whole.update(str(each).encode() + each.read_bytes())
    return whole.hexdigest()


def ended(process):
    """Wait for a process, with Ctrl-C after some time; return its exit code, None for a hang."""
    process.join(SECONDS)
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGINT)
        process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def fault_of(code, said):
    """Return what is wrong with how a case ended, or nothing."""
    if code is None:
        return "hangs"
    if "Traceback" in said or "Exception ignored" in said:
        return "traceback"
    if code not in (0, 2, 130):
        return f"exit code {code}"
    if "\x1b[2J" in said or "\x1b[31m" in said:
        return "drives the terminal"
    lines = [line for line in said.splitlines() if line.startswith("widemax: ")]
    if code == 2 and not (len(lines) == 1 or "Usage: " in said):
        return f"{len(lines)} lines of error"
    return ""


def run_case(workshop, number, seed):
    """Run one case; return its kind, its exit code and what is wrong with it."""
    with temporary_folder(workshop.folder) as here:
        arguments, kept, kind = workshop.case(number, seed, here)
        before = [digest(path) for path in kept]
        code = ended(start(arguments, here / "said", memory=MEMORY))
        said = (here / "said").read_text(errors="replace")
        fault = fault_of(code, said)
        if not fault and before != [digest(path) for path in kept]:
            fault = "what it reads was changed"
        if fault:
            shown = " ".join(each[:80] for each in arguments)
            fault = f"case {number} ({kind}): {fault}: {shown!r}\n    {said.strip()[-600:]}"
        return kind, code, fault


@contextmanager
def temporary_folder(beside):
    """Yield a new folder that is removed afterwards, whatever it holds."""
    folder = Path(tempfile.mkdtemp(dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def outcomes(workshop, given):
    """Yield the kind of each case and kill, how it ended, and what is wrong with it."""
    for number in range(given.first, given.cases) if given.only is None else [given.only]:
        yield run_case(workshop, number, given.seed)
    kills = Kills(workshop, given.seed, KILLED_EXPORTS) if given.kills else None
    for number in range(given.kills):
        with temporary_folder(workshop.folder) as here:
            kill = kills.run(number, here)
        fault = "; ".join(f"{kind}: {what}" for kind, what in kill.broken)
        fault = f"kill {number} of {fault}" if fault else ""
        yield f"kill {kill.verb}", "at work" if kill.at_work else "had ended", fault


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--from", type=int, default=0, dest="first", help="skip the cases before")
    given = parser.parse_args()
    # A shell lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faults, ends = 0, Counter()
    warm_up()
    with temporary_folder(None) as folder, suppress(KeyboardInterrupt):  # then say how far it got
        for kind, end, fault in outcomes(Workshop(folder), given):
            ends[kind, end] += 1
            if ends.total() % 50 == 0:
                print(f"{ends.total():,} done", flush=True)
            if fault:
                faults += 1
                print(fault, flush=True)
    for (kind, code), count in sorted(ends.items(), key=str):
        print(f"{kind:12} {code!s:10} {count:6,}")
    print(f"{sum(ends.values()):,} cases and kills, {faults:,} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
