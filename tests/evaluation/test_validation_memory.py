"""What validation holds beside the model does not grow with the catalogue."""

import sys

import pytest

from tests import forked

MOST = 256 * 2**20  # less than a copy of the table
NUM_CLASSES = 2_000_000

# Left alone, glibc keeps of what is freed up to 100 MB, or nothing, by chance.
PROGRAM = """
import ctypes
import sys
from pathlib import Path

import torch

from widemax.data import Holdout, Sequences, Windows
from widemax.models import YouTubeDNN
from widemax.runs.judging.validation import validation_of

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(each for each in lines if each.startswith(name)).split()[1]) * 1024

M_MMAP_THRESHOLD = -3
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**16)
torch.set_num_threads(1)
num_classes, users, length = int(sys.argv[1]), 256, 5

def judge_of(num_classes):
    counts = torch.ones(num_classes, dtype=torch.int64)
    model = YouTubeDNN.create(counts, dimension=48, num_samples=16, sampler="uniform").eval()
    items = torch.randint(num_classes, (users * length,))
    targets = Sequences(torch.arange(users) % num_classes, torch.arange(users + 1))
    log = Sequences(items, torch.arange(users + 1) * length)
    asked = Holdout(log, targets, torch.arange(users))
    if sys.argv[2] == "windows":
        asked = Windows(log, before=length, require_context=True, positions=torch.arange(128))
    return validation_of(model, asked, sys.argv[2].replace("windows", "loss"), max_history=length)

judge_of(1000)()  # loads and compiles
judge = judge_of(num_classes)
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
judge()
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process as Linux has it")
@pytest.mark.parametrize("asked", ["ndcg@20", "windows"])
def test_validation_of_two_million_classes_holds_little_beside_the_model(asked):
    done = forked.run(["-c", PROGRAM, NUM_CLASSES, asked], check=True)
    assert int(done.stdout) <= MOST
