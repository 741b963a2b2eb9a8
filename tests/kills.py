"""Verbs that are killed at random moments, and what must be true of their folders afterwards.

A verb is run to its end once: what it then left, and how long it took, is what its victims are held
against. A victim is ended by SIGKILL at any moment from its start to a little past its usual end.
Then every checkpoint that was complete must be there and whole, the run must answer, and answer as
before; the same command again must succeed, and end in the same model and the same answer. What is
asked after a kill is asked in this process, and in new ones if the victim was a new interpreter.
"""

import hashlib
import json
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.runs.run_processes import Fresh, finish, run_here, start
from widemax.training.checkpoints import CheckpointStore

UNREADABLE, LOST, WRONG = "unreadable folders", "lost completed checkpoints", "wrong answers"
VERBS = ("train", "resume", "export", "index", "save", "report", "audit")
# Several checkpoints in a training of a fraction of a second.
FLAGS = ("--dimension", "4", "--validation-size", "5", "--batch-size", "32",
         "--checkpoint-every", "1")  # fmt: skip
EPOCHS = 3
INDEXES = ("exact", "hnsw", "ivf", "ivf8")


@dataclass
class Kill:
    """One victim: what it did, whether it was at work, and what its death broke."""

    verb: str
    is_fresh: bool
    at_work: bool = False
    place: float = 0.0
    """Where in the time that such a victim is given it was killed, from 0 to 1."""
    broken: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Usual:
    """What a verb comes to if nothing stops it."""

    model: str
    answer: object
    files: dict[str, bytes]


class Kills:
    """Victims in folders of their own, made from the runs of a workshop.

    ``exports`` are the formats that are written.
    """

    def __init__(self, workshop, seed, exports):
        self.workshop, self.seed, self.exports = workshop, seed, exports
        self.sound = workshop.runs["log"]
        self.begun = workshop.folder / "begun"
        self._usual, self._seconds, self._answers = {}, {}, {}
        torch.set_num_threads(1)  # as in the victims: the last bits depend on it
        code, said = run_here(ask(self.sound))
        assert code == 0, said
        self.answer = answer_in(said)

    def run(self, number, here, *, fresh=False):
        """Kill one verb in an empty folder; return what became of it."""
        draw = random.Random(f"{self.seed}.{number}")
        verb = VERBS[number % len(VERBS)]
        how = draw.choice({"export": self.exports, "index": INDEXES}.get(verb, [""]))
        usual = self.usual(verb, how, here / "whole")
        victim = Victim(self, verb, how, here / "victim")
        timed = (verb, "fresh" if fresh else how)
        if timed not in self._seconds:
            # An interpreter of its own takes seconds to start, a fork nothing.
            other = Victim(self, verb, how, here / "timed")
            began = time.perf_counter()
            Fresh(other.arguments, other.said).join()
            self._seconds[timed] = time.perf_counter() - began
        seconds, place = self._seconds[timed], draw.random()
        began = time.perf_counter()
        steps, at_work = victim.kill(place * seconds, draw, fresh=fresh)
        # How long a verb takes changes with what else the machine does: moments are drawn up to a
        # little past the end, and whoever ends before its moment shows where that is.
        shown = 1.1 * (time.perf_counter() - began)
        self._seconds[timed] = 1.03 * seconds if at_work else shown
        broken = list(victim.faults(steps, usual))
        return Kill(verb, fresh, at_work, place, [(kind, f"{verb} {how}: {what}")
                                                  for kind, what in broken])  # fmt: skip

    def usual(self, verb, how, here):
        """Return what a verb comes to if nothing stops it; ``here`` is where it is tried first."""
        if (verb, how) not in self._usual:
            victim = Victim(self, verb, how, here)
            began = time.perf_counter()
            code, said = finish(victim.arguments, victim.said)
            assert code == 0, said
            self._seconds[verb, how] = time.perf_counter() - began
            code, said = finish(ask(victim.run), victim.said)
            assert code == 0, said
            usual = Usual(model_of(victim.run), answer_in(said), files_of(victim.target))
            self._usual[verb, how] = usual
        return self._usual[verb, how]

    def make_begun(self):
        """Return a run that has not come to the end of what is asked of it."""
        if not self.begun.exists():
            given = ["train", self.workshop.log, "--folder", self.begun, *FLAGS, "--epochs", "1"]
            code, said = run_here(given)
            assert code == 0, said
        return self.begun

    def old_export(self, how):
        """Return what an export of another run has written, in one of the formats."""
        path = self.workshop.folder / f"old-{how}"
        if not path.exists():
            code, said = run_here(["export", self.workshop.runs["text"], path, "--to", how])
            assert code == 0, said
        return path

    def known_answer(self, key, answer):
        """Return the answer that was given first in the same situation."""
        return self._answers.setdefault(key, answer)


class Victim:
    """A verb with the folder that it works in."""

    def __init__(self, kills, verb, how, here):
        here.mkdir()
        self.kills, self.verb, self.how = kills, verb, how
        self.run, self.said, self.target = here / "run", here / "said", here / "out"
        log = kills.workshop.log
        if verb == "resume":
            shutil.copytree(kills.make_begun(), self.run)
        elif verb not in ("train", "save"):
            shutil.copytree(kills.sound, self.run)
        if verb == "export":
            # Something is there that must stay whole until it is replaced.
            copy = shutil.copytree if kills.old_export(how).is_dir() else shutil.copyfile
            copy(kills.old_export(how), self.target)
        elif verb == "report":
            self.target = self.run / "report.html"
            self.target.write_text("an old report</html>\n")
        elif verb == "audit":
            self.target = self.run / "audit.json"
            self.target.write_text("{}")
        train = ["train", log, "--folder", self.run, *FLAGS, "--epochs", str(EPOCHS)]
        self.arguments = {
            "train": train,
            "save": train,
            "resume": ["train", log, "--folder", self.run, "--resume", "--epochs", str(EPOCHS)],
            "export": ["export", self.run, self.target, "--to", how],
            "index": ["index", self.run, "--kind", how],
            "report": ["report", self.run],
            "audit": ["audit", self.run, "--draws", "20", "--examples", "8"],
        }[verb]
        self.is_fresh = False
        self.old = files_of(self.target)
        self.steps = self._steps()

    def kill(self, seconds, draw, *, fresh):
        """Let it work for some seconds; return the steps it had saved, and if it was at work.

        A training that is killed at a save is left until it has saved some steps instead.
        """
        self.is_fresh = fresh
        process = (Fresh if fresh else start)(self.arguments, self.said)
        if self.verb == "save":
            wanted, longest = draw.randint(1, 8), time.monotonic() + 60
            while process.exitcode is None and time.monotonic() < longest:
                if self._steps()[-1:] >= [wanted]:
                    break
                time.sleep(0.0005)
            time.sleep(draw.uniform(0, 0.02))
        else:
            process.join(seconds)
        steps = self._steps()
        process.kill()
        process.join()
        return steps, process.exitcode == -signal.SIGKILL

    def faults(self, steps, usual):
        """Yield what is lost, torn, unreadable or otherwise than it should be."""
        left = self._steps()
        trains = self.verb in ("train", "save", "resume")
        if left[-1:] < steps[-1:] if trains else left != self.steps:
            yield LOST, f"had {self.steps}, then {steps}, has {left}"
        for step in left:
            try:
                CheckpointStore(self.run).load(step).model_tensors()
            except (ValueError, OSError) as error:
                yield LOST, f"step {step} is damaged: {error}"
        yield from self._torn(usual)
        had_begun = (self.run / "run.json").exists()
        if had_begun:
            yield from self._wrong_answer(left, usual)
        again = self.arguments
        if self.verb in ("train", "save") and had_begun:
            again = [*again[:4], "--resume"]
        code, said = self._finish(again)
        if code:
            yield UNREADABLE, f"cannot be run again: {said}"
        elif model_of(self.run) != usual.model:
            yield WRONG, "ends in another model than the one that was not killed"
        elif (asked := self._ask())[0]:
            yield UNREADABLE, f"cannot be asked in the end: {asked[1]}"
        elif answer_in(asked[1]) != usual.answer:
            yield WRONG, f"answers {asked[1]} in the end, not {usual.answer}"
        elif self.verb == "export" and files_of(self.target) != usual.files:
            yield WRONG, "writes other files than the one that was not killed"

    def _torn(self, usual):
        """Yield the files of an output that are neither the old ones nor the new ones."""
        found = files_of(self.target)
        if self.verb == "report":  # it tells the time
            torn = not found.get("report.html", b"").endswith(b"</html>\n")
        elif self.verb == "audit":
            try:
                torn = not isinstance(json.loads(found.get("audit.json", b"")), dict)
            except ValueError:
                torn = True
        else:
            torn = any(found[name] not in (self.old.get(name), usual.files.get(name))
                       for name in found) or not set(self.old) <= set(found)  # fmt: skip
        if torn:
            yield WRONG, f"torn files among {sorted(found)}"

    def _wrong_answer(self, left, usual):
        """Yield how the run answers otherwise than it did, or does not answer."""
        code, said = self._ask()
        if self.verb in ("train", "save") and not left:
            if code != 2 or "no checkpoint yet" not in said:
                yield UNREADABLE, f"a run without checkpoints says {said}"
        elif code:
            yield UNREADABLE, f"cannot be asked: {said}"
        elif self.verb in ("train", "save", "resume"):
            # What is answered follows from what is saved, whenever the training was killed.
            given = answer_in(said)
            key = (self.verb == "resume", *left)
            if given != self.kills.known_answer(key, given):
                yield WRONG, f"with steps {left} answers {given} this time"
        elif answer_in(said) not in (self.kills.answer, usual.answer):
            yield WRONG, f"answers {answer_in(said)}"

    def _ask(self):
        return self._finish(ask(self.run))

    def _finish(self, arguments):
        return finish(arguments, self.said) if self.is_fresh else run_here(arguments)

    def _steps(self):
        return CheckpointStore(self.run).steps() if self.run.exists() else []


def ask(run):
    """Return the arguments that ask a run."""
    return ["recommend", run, "--user", "u3", "--json"]


def answer_in(said):
    """Return the items and scores of ``recommend --json``."""
    return json.loads(said[said.index("[") :])


def files_of(path):
    """Return the content of a file, or of the files of a folder, by name."""
    if path.is_dir():
        return {each.name: each.read_bytes() for each in path.iterdir() if each.suffix != ".part"}
    return {path.name: path.read_bytes()} if path.exists() else {}


def model_of(run: Path):
    """Return what identifies the newest model of a run."""
    newest = sorted(run.glob("checkpoints/step-*"))[-1]
    return hashlib.sha256((newest / "model.safetensors").read_bytes()).hexdigest()
