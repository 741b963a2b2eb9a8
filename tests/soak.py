"""Faults at random, for as long as it is told to: what must never happen is counted.

    python -m tests.soak --minutes 60 --kills 1000 --seed 0

Kills ``train``, ``export``, ``index``, ``report`` and ``audit`` at random moments, fills the disk
under them, damages files and settings, sends hostile requests to a run that is served, and lets two
processes train in one folder. Most processes are forks of a server that has loaded the program, so
that a kill hits what the verb does; one in twenty victims is a new interpreter, which is hit while
it starts too. After each fault everything that was complete before must be there, readable and the
same. It stops by itself, after so many minutes or, if that is sooner, so many kills of a victim
that was at work. It prints how many faults it injected and what they did, and exits with 1 if a
folder could not be read, a completed checkpoint was lost, an answer was wrong, a command broke the
rules for errors, or no fault was injected at all. All traffic is to 127.0.0.1.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress

from tests.hostile import (
    KILLED_EXPORTS,
    SMALL,
    Workshop,
    ended,
    fault_of,
    run_case,
    temporary_folder,
)
from tests.kills import LOST, UNREADABLE, VERBS, WRONG, Kills, ask, model_of
from tests.memory import folder_in_memory
from tests.runs.run_processes import run_here, start, warm_up
from widemax.training.checkpoints import CheckpointStore

RULES = "broken rules"
KINDS = (UNREADABLE, LOST, WRONG, RULES)
QUESTION = {"history": ["i1", "i2"], "k": 5}
# How often each fault is injected beside the others.
SHARES = {"kill": 38, "fresh kill": 2, "full disk": 3, "damage": 3, "request": 6, "two": 1}
HOSTILE = (
    b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n",
    b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
    b"GET /%252e%252e%252f%252e%252e%252fetc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"\0" * 4096,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
BODIES = (
    b"[" * 100_000,
    b'{"k": -1, "history": ["i1"]}',
    b'{"k": 1000000000, "history": ["i1"]}',
    b'{"history": ["nowhere"]}',
    b'{"history": [null]}',
    b'{"user": "u3", "k": NaN}',
    b"{",
    b"\xff\xfe",
)


class Soak:
    """A workshop, a served run, and the faults that are injected into both."""

    def __init__(self, folder, seed):
        self.folder, self.seed, self.draw = folder, seed, random.Random(seed)
        self.workshop = Workshop(folder)
        self.sound = self.workshop.runs["log"]
        self.answer = self._asked(self.sound)
        self.kills, self.victims = Kills(self.workshop, seed, KILLED_EXPORTS), 0
        self.tried, self.killed, self.moments = Counter(), Counter(), Counter()
        self.port = free_port()
        self.server = start(["serve", self.sound, "--port", self.port], folder / "served")
        self.served = self._when_open()

    def close(self):
        """End the server; return what was wrong with how it ended."""
        os.kill(self.server.pid, signal.SIGINT)
        self.server.join(30)
        code = self.server.exitcode
        if code is None:
            self.server.kill()
        said = (self.folder / "served").read_text(errors="replace")
        bad = code not in (0, 130) or "Traceback" in said
        return [("broken rules", f"the server ended with {code}: {said[-600:]}")] if bad else []

    def inject(self, number):
        """Inject one fault; return its kind, whether it hit, and what it broke."""
        kind = self.draw.choices(list(SHARES), list(SHARES.values()))[0]
        hit, broken = getattr(self, "_" + kind.replace(" ", "_"))(number)
        return kind, hit, broken

    def _kill(self, number, *, fresh=False):
        with temporary_folder(self.folder) as here:
            kill = self.kills.run(self.victims, here, fresh=fresh)
        self.victims += 1
        origin = "fresh" if fresh else "forked"
        self.tried[origin, kill.verb] += 1
        if kill.at_work:
            self.killed[origin, kill.verb] += 1
            self.moments[origin, min(9, int(10 * kill.place))] += kill.verb != "save"
        return kill.at_work, kill.broken

    def _fresh_kill(self, number):
        return self._kill(number, fresh=True)

    def _full_disk(self, number):
        """Let a verb write where there is no room; then make room and look."""
        with temporary_folder(self.folder) as here, small_disk(here) as (place, limit):
            run, said = place / "run", here / "said"
            shutil.copytree(self.sound, run)
            room = self.draw.randint(0, 40_000)
            filler = place / "filler"
            if limit:
                free = shutil.disk_usage(place).free
                filler.write_bytes(b"\0" * max(0, free - room))
            more = ["train", self.workshop.log, "--folder", run, "--resume", "--epochs", "4"]
            index = ["index", run, "--kind", "exact"]
            out = ["export", run, place / "out", "--to", "word2vec"]
            arguments = self.draw.choice([more, index, out])
            code = ended(start(arguments, said, limit=None if limit else max(room, 1)))
            text = said.read_text(errors="replace")
            filler.unlink(missing_ok=True)
            broken = []
            if code is None or "Traceback" in text:
                broken.append((RULES, f"full disk, {arguments[0]}: {code} {text[-600:]}"))
            steps = CheckpointStore(self.sound).steps()
            if CheckpointStore(run).steps()[-1:] < steps[-1:]:
                broken.append((LOST, f"full disk, {arguments[0]}"))
            # What was trained on answers otherwise, and its index is of the checkpoint before.
            asked = self._asked(run, "--exact") if arguments is more else self._asked(run)
            if asked is None:
                broken.append((UNREADABLE, f"full disk, {arguments[0]}: cannot be asked"))
            elif arguments is not more and asked != self.answer:
                broken.append((WRONG, f"full disk, {arguments[0]}: another answer"))
            return code != 0, broken

    def _damage(self, number):
        _, code, fault = run_case(self.workshop, number, self.seed)
        return code != 0, [(RULES, fault)] if fault else []

    def _request(self, number):
        """Send something hostile, then ask what is known; the answer must not have changed."""
        body = self.draw.choice(BODIES)
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        wrong = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        data = self.draw.choice([*HOSTILE, wrong, wrong])
        if self.draw.random() < 0.3:
            data = data[: self.draw.randint(1, len(data))]  # and then the client is gone
        said = self._send(data, answer=self.draw.random() < 0.8)
        broken = []
        if said.startswith((b"HTTP/1.1 5", b"HTTP/1.1 2")) and b" 503 " not in said[:20]:
            broken.append((RULES, f"hostile request: {data[:60]!r}: {said[:200]!r}"))
        if self._question() != self.served:
            broken.append((WRONG, f"the server answers otherwise after {data[:60]!r}"))
        return True, broken

    def _two(self, number):
        """Let two processes train in one folder: one does, the other is told so."""
        with temporary_folder(self.folder) as here:
            run = here / "run"
            arguments = ["train", self.workshop.log, "--folder", run, *SMALL]
            both = [start(arguments, here / name) for name in ("first", "second")]
            codes = [ended(process) for process in both]
            said = [(here / name).read_text(errors="replace") for name in ("first", "second")]
            broken = [(RULES, f"two processes: {why}: {text[-300:]}")
                      for why, text in zip(map(fault_of, codes, said), said, strict=True)
                      if why]  # fmt: skip
            if 0 not in codes:
                broken.append((RULES, f"neither of two processes trained: {codes} {said}"))
            elif model_of(run) != model_of(self.sound):
                broken.append((WRONG, "two processes trained another model than one"))
            return 2 in codes, broken

    def _asked(self, run, *more):
        code, said = run_here([*ask(run), *more])
        return json.loads(said[said.index("[") :]) if code == 0 and "[" in said else None

    def _send(self, data, *, answer=True):
        """Send bytes; return the beginning of what comes back, nothing if nothing does."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 15) as line:
            line.sendall(data)
            if answer:
                line.settimeout(0.5)
                return line.recv(65536)
        return b""

    def _question(self):
        """Return the items that the server answers with, or None."""
        body = json.dumps(QUESTION).encode()
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        found = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 30) as line:
            line.sendall(head + body)
            while part := line.recv(65536):
                found += part
        _, _, text = found.partition(b"\r\n\r\n")
        with suppress(ValueError):
            return [(each["key"], each["score"]) for each in json.loads(text)["items"]]
        return None

    def _when_open(self):
        for _ in range(600):
            if (answer := self._question()) is not None:
                return answer
            time.sleep(0.1)
        raise SystemExit(f"the server did not start: {(self.folder / 'served').read_text()}")


def free_port():
    """Return a port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def small_disk(here):
    """Yield a folder on a disk of 4 MB, and True; where none can be mounted a folder, and False."""
    place = here / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    allowed = os.geteuid() == 0 and shutil.which("mount") is not None
    mounted = allowed and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield place, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


def show_kills(soak):
    """Print the victims that were at work when they were killed, by verb and by moment."""
    print(f"{soak.killed.total():,} kills of a victim at work")
    print(f"  {'':<12}" + "".join(f"{verb:>8}" for verb in VERBS) + f"{'all':>8}")
    for origin in ("forked", "fresh"):
        for name, counts in ((origin, soak.killed), ("  had ended", soak.tried - soak.killed)):
            numbers = [counts[origin, verb] for verb in VERBS]
            print(f"  {name:<12}" + "".join(f"{n:8,}" for n in [*numbers, sum(numbers)]))
    print("  by tenth of the time from a start to a little past the usual end (save: at a save)")
    for origin in ("forked", "fresh"):
        print(f"  {origin:<12}" + "".join(f"{soak.moments[origin, k]:6,}" for k in range(10)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, help="stop after so many, if that is sooner")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # A shell lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    injected, hits, broken = Counter(), Counter(), Counter(dict.fromkeys(KINDS, 0))
    told = began = time.monotonic()
    soak = None

    def count(found):
        for kind, what in found:
            broken[kind] += 1
            print(f"{kind}: {what}", flush=True)

    def is_done():
        enough = given.kills is not None and soak.killed.total() >= given.kills
        return enough or time.monotonic() - began >= 60 * given.minutes

    place = folder_in_memory()  # a kill, unlike a power cut, loses nothing that was not synced
    with temporary_folder(place) as folder, suppress(KeyboardInterrupt):  # then say how far it got
        print("starting: what the verbs load, and sound runs to spoil", flush=True)
        warm_up()
        soak = Soak(folder, given.seed)
        told = began = time.monotonic()  # making what is spoilt takes no part of the time
        try:
            number = 0
            while not is_done():
                kind, hit, found = soak.inject(number)
                number += 1
                injected[kind] += 1
                hits[kind] += hit
                count(found)
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    kills = soak.killed.total()
                    minutes = (told - began) / 60
                    print(f"{minutes:.1f} min, {number:,} faults, {kills:,} kills", flush=True)
        finally:
            count(soak.close())
    print(f"{injected.total():,} faults injected in {(time.monotonic() - began) / 60:.1f} minutes")
    for kind in SHARES:
        print(f"  {kind:<12} {injected[kind]:6,}   of which hit {hits[kind]:6,}")
    if soak is not None:
        show_kills(soak)
    print("  ".join(f"{kind}: {broken[kind]}" for kind in KINDS))
    sys.exit(1 if broken.total() or not injected else 0)


if __name__ == "__main__":
    main()
