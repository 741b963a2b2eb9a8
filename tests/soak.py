"""Faults at random, for as long as it is told to: what must never happen is counted.

    python -m tests.soak --minutes 60 --seed 0

Kills ``train``, ``export`` and ``index`` at random moments, fills the disk under them, damages
files and settings, sends hostile requests to a run that is served, and lets two processes train in
one folder. After each fault everything that was complete before must be there, readable and the
same. It stops by itself, prints how many faults it injected and what they did, and exits with 1 if
a folder could not be read, a completed checkpoint was lost, an answer was wrong, a command broke
the rules for errors, or no fault was injected at all. All traffic is to 127.0.0.1.
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
    SMALL,
    Workshop,
    digest_of_models,
    ended,
    fault_of,
    run_case,
    run_kill,
    temporary_folder,
)
from tests.runs.run_processes import finish, start
from widemax.training.checkpoints import CheckpointStore

KINDS = ("unreadable folders", "lost completed checkpoints", "wrong answers", "broken rules")
QUESTION = {"history": ["i1", "i2"], "k": 5}
# How often each fault is injected beside the others.
SHARES = {"kill": 10, "checkpoint": 4, "full disk": 3, "damage": 3, "request": 6, "two": 1}
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
        self.durations = {}
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

    def _kill(self, number):
        verb, at_work, fault = run_kill(self.workshop, number, self.seed, self.durations)
        # How long a verb takes changes with what else the machine does: kills must hit it.
        self.durations[verb] *= 1.1 if at_work else 0.8
        if not fault:
            return at_work, []
        torn = "torn" in fault or "another model" in fault
        return at_work, [(KINDS[2] if torn else KINDS[0], f"kill of {verb}: {fault}")]

    def _checkpoint(self, number):
        """Kill a training that saves at every step, just after looking at what it has saved."""
        with temporary_folder(self.folder) as here:
            run, said = here / "run", here / "said"
            flags = [*SMALL, "--epochs", "3", "--checkpoint-every", "1", "--batch-size", "32"]
            arguments = ["train", self.workshop.log, "--folder", run, *flags]
            process = start(arguments, said)
            longest = time.monotonic() + 30
            wanted = self.draw.randint(1, 8)
            while process.exitcode is None and time.monotonic() < longest:
                before = CheckpointStore(run).steps() if run.exists() else []
                if before and before[-1] >= wanted:
                    break
                time.sleep(0.001)
            time.sleep(self.draw.uniform(0, 0.05))
            before = CheckpointStore(run).steps() if run.exists() else []
            process.kill()
            process.join()
            hit = process.exitcode == -signal.SIGKILL
            after = CheckpointStore(run).steps() if run.exists() else []
            if before and (not after or after[-1] < before[-1]):
                return hit, [(KINDS[1], f"had {before}, has {after}")]
            if not after:
                return hit, []
            code, text = finish(["evaluate", run], said)
            return hit, [(KINDS[0], f"after {after}: {text}")] if code else []

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
                broken.append((KINDS[3], f"full disk, {arguments[0]}: {code} {text[-600:]}"))
            steps = CheckpointStore(self.sound).steps()
            if CheckpointStore(run).steps()[-1:] < steps[-1:]:
                broken.append((KINDS[1], f"full disk, {arguments[0]}"))
            if arguments is not more and self._asked(run) != self.answer:
                broken.append((KINDS[2], f"full disk, {arguments[0]}: another answer"))
            elif self._asked(run) is None:
                broken.append((KINDS[0], f"full disk, {arguments[0]}: cannot be asked"))
            return code != 0, broken

    def _damage(self, number):
        _, code, fault = run_case(self.workshop, number, self.seed)
        return code != 0, [(KINDS[3], fault)] if fault else []

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
            broken.append((KINDS[3], f"hostile request: {data[:60]!r}: {said[:200]!r}"))
        if self._question() != self.served:
            broken.append((KINDS[2], f"the server answers otherwise after {data[:60]!r}"))
        return True, broken

    def _two(self, number):
        """Let two processes train in one folder: one does, the other is told so."""
        with temporary_folder(self.folder) as here:
            run = here / "run"
            arguments = ["train", self.workshop.log, "--folder", run, *SMALL]
            both = [start(arguments, here / name) for name in ("first", "second")]
            codes = [ended(process) for process in both]
            said = [(here / name).read_text(errors="replace") for name in ("first", "second")]
            broken = [(KINDS[3], f"two processes: {why}: {text[-300:]}")
                      for why, text in zip(map(fault_of, codes, said), said, strict=True)
                      if why]  # fmt: skip
            if 0 not in codes:
                broken.append((KINDS[3], f"neither of two processes trained: {codes} {said}"))
            elif digest_of_models(run) != digest_of_models(self.sound):
                broken.append((KINDS[2], "two processes trained another model than one"))
            return 2 in codes, broken

    def _asked(self, run):
        code, said = finish(["recommend", run, "--user", "u3", "--json"], self.folder / "asked")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # A shell lets what it starts in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    injected, hits, broken = Counter(), Counter(), Counter(dict.fromkeys(KINDS, 0))
    told = began = time.monotonic()

    def count(found):
        for kind, what in found:
            broken[kind] += 1
            print(f"{kind}: {what}", flush=True)

    with temporary_folder(None) as folder, suppress(KeyboardInterrupt):  # then say how far it got
        soak = Soak(folder, given.seed)
        told = began = time.monotonic()  # making what is spoilt takes no part of the time
        try:
            number = 0
            while time.monotonic() - began < 60 * given.minutes:
                kind, hit, found = soak.inject(number)
                number += 1
                injected[kind] += 1
                hits[kind] += hit
                count(found)
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    print(f"{(told - began) / 60:.1f} min, {number:,} faults", flush=True)
        finally:
            count(soak.close())
    print(f"{injected.total():,} faults injected in {(time.monotonic() - began) / 60:.1f} minutes")
    for kind in SHARES:
        print(f"  {kind:<12} {injected[kind]:6,}   of which hit {hits[kind]:6,}")
    print("  ".join(f"{kind}: {broken[kind]}" for kind in KINDS))
    sys.exit(1 if broken.total() or not injected else 0)


if __name__ == "__main__":
    main()
