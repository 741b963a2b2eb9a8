"""An epoch of SASRec, MIND and SDM on MovieLens 1M against RecTools and DeepMatch.

Same data, dimensions, batches and number of negatives on one thread; steps are whole ones, with
the optimiser, taken in turn, and times are processor time. RecTools' SASRec learns from the last 50
items of each user, 128 users a step, once with the softmax over all items and once with 256 uniform
negatives, which RecTools draws for each target and widemax for the batch. DeepMatch's MIND and
SDM read up to 50 items before each target, 512 targets a step, with 800 uniform negatives for the
batch. They come with examples that are made already; ours are made in the step.

The others need an environment of their own, which --peers or WIDEMAX_PEERS names:

    python -m venv peers && peers/bin/pip install torch==2.13.0
    peers/bin/pip install "rectools[torch]==0.19.0" "tensorflow<2.16" deepmatch==0.3.2
    python benchmarks/sequences.py --peers peers/bin/python --check
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import _sequence_peers as peers
from _harness import DATA, Report, command_line
from widemax.data import Sequences
from widemax.models import MIND, SDM, Model, SASRec
from widemax.optim import DenseAdam, RowAdam
from widemax.training.gradients.steps import GradientSteps

LOG = DATA / "ml-1m" / "ml-1m.txt"
LEAST = 3.0
DOTS: dict[str, Any] = {"similarity": "dot", "temperature": 1.0, "bias": False}
"""How the others score, where cosines are usual here."""
OTHERS = {
    "SASRec": "RecTools",
    "SASRec over all items": "RecTools",
    "MIND": "DeepMatch",
    "SDM": "DeepMatch",
}


def steps_of(name: str, log: Sequences) -> GradientSteps:
    """Return the training of one of our models, with the settings of its peer."""
    torch.manual_seed(0)
    size, counts = peers.DIMENSION, torch.bincount(log.values)
    if name in ("MIND", "SDM"):
        given: dict[str, Any] = {"num_interests": peers.INTERESTS, "sampler": "uniform", **DOTS}
        if name == "SDM":
            heads = peers.HEADS
            given = {
                "short": peers.SHORT,
                "num_attention_heads": heads,
                "max_history": peers.LENGTH,
            }
        kind: type[Model] = {"MIND": MIND, "SDM": SDM}[name]
        model = kind.create(
            counts, dimension=size, num_samples=peers.NEGATIVES[name.lower()], **given
        )
        examples = model.windows(log, max_history=peers.LENGTH, window=1)
        return GradientSteps(
            model, RowAdam(model.parameters()), examples, batch_size=peers.EXAMPLES
        )
    negatives = {"sampler": "uniform", "num_samples": peers.NEGATIVES["sasrec"], "num_groups": 1}
    sasrec = SASRec.create(
        counts,
        dimension=size,
        block="sasrec",
        expansion=1,
        num_attention_heads=peers.HEADS,
        max_history=peers.LENGTH + 1,
        dropout=peers.DROPOUT,
        dropout_targets=0,
        item_scale=1.0,
        **DOTS,
        **(negatives if name == "SASRec" else {"head": "full"}),
    )
    # One item more than is read: the last is a target only.
    segments = sasrec.segments(log, length=peers.LENGTH + 1)
    return GradientSteps(sasrec, DenseAdam(sasrec.parameters()), segments, batch_size=peers.ROWS)


def taker(steps: GradientSteps) -> Callable[[], float]:
    """Return what takes the next steps, and returns the processor seconds of one."""
    done = 0

    def take() -> float:
        nonlocal done
        start = time.process_time()
        for _ in range(peers.CALLS):
            steps.take(done, 0.001)
            done += 1
        return (time.process_time() - start) / peers.CALLS

    return take


class Peer:
    """Another library's training in a process of its own, which takes steps when asked."""

    def __init__(self, python: str, name: str) -> None:
        command = [python, peers.__file__, name, str(LOG)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer("ready")

    def _answer(self, start: str = "") -> str:
        """Return the next line that it says; libraries print lines of their own, too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start) and (start or line[0].isdigit()):
                return line
        raise SystemExit(f"{' '.join(self._process.args)} ended: is all there that it imports?")

    def take(self) -> float:
        """Return the processor seconds of one of its next steps."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._answer())

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def check_results(name: str, log: Sequences) -> None:
    """What is timed learns: the loss of a batch falls while it is trained on."""
    steps = steps_of(name, log)
    batch, losses = steps.examples.batch(torch.arange(64)), []
    steps.optimizer.param_groups[0]["lr"] = 0.01
    for step in range(10):
        steps.optimizer.zero_grad()
        loss = steps.model(batch, generator=torch.Generator().manual_seed(step)).mean()
        loss.backward()
        steps.optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < 0.95 * losses[0]:
        raise SystemExit(f"{name} does not learn: {losses}")


def compare(name: str, log: Sequences, peer: Peer, repeats: int) -> tuple[float, float, int]:
    """Return the median seconds of our step and of the peer's, and how many make an epoch."""
    steps = steps_of(name, log)
    take = taker(steps)
    take()
    pairs = [(take(), peer.take()) for _ in range(repeats)]
    own, others = (statistics.median(each) for each in zip(*pairs, strict=True))
    return own, others, steps.per_epoch


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--peers", help="the Python that has the others; else WIDEMAX_PEERS")
    parser.add_argument("--models", default=",".join(OTHERS), help="such as MIND,SDM")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    python = options.peers or os.environ.get("WIDEMAX_PEERS")
    if python is None:
        sys.exit("--peers must name the Python that has RecTools and DeepMatch: see --help")
    torch.set_num_threads(1)
    report = Report(options)
    values, offsets = peers.read_log(LOG)
    whole = Sequences(torch.from_numpy(values), torch.from_numpy(offsets))
    short = Sequences(*map(torch.from_numpy, peers.last_items(values, offsets)))
    for name in options.models.split(","):
        log = short if name.startswith("SASRec") else whole
        check_results(name, log)
        peer = Peer(python, name)
        own, others, count = compare(name, log, peer, options.repeats)
        peer.end()
        report.add(f"{name}: an epoch (s)", own * count)
        report.add(f"{name}: an epoch of {OTHERS[name]} (s)", others * count)
        report.add(f"{name}: times as fast", others / own, LEAST)
    report.finish()


if __name__ == "__main__":
    main()
