"""Steps of a training in several processes: few rows in a batch, and any number that goes on."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.distributed.processes import SIZES, measured_by_all
from tests.distributed.test_data_parallel import apart
from widemax.data import Sequences
from widemax.distributed import Ranks
from widemax.models import NextItem, SASRec
from widemax.optim import OPTIMIZERS
from widemax.planning.measuring import steps_of
from widemax.planning.workload import Workload
from widemax.training.checkpoints import CheckpointStore
from widemax.training.gradients.steps import GradientSteps
from widemax.training.loop import Loop, Plan
from widemax.training.together import Together

COUNTS = [9, 7, 5, 4, 4, 3, 2]
LOG = Sequences.from_lists([[0, 1, 2, 3], [4, 0, 5], [1, 0, 6, 2, 3], [2, 4]])
MODELS = {
    "in-batch": lambda: NextItem.create(COUNTS, dimension=4, sampler="in-batch"),
    "drawn": lambda: NextItem.create(COUNTS, dimension=4, num_samples=3),
    # Several targets a row, of which one process may have more than another.
    "sasrec": lambda: SASRec.create(COUNTS, dimension=4, sampler="in-batch", dropout=0.0),
}
MADE = {
    "in-batch": lambda: NextItem.windows(LOG, max_history=3, window=1),
    "drawn": lambda: NextItem.windows(LOG, max_history=3, window=1),
    "sasrec": lambda: SASRec.windows(LOG, max_history=3, window=1),
}
WEIGHTS = torch.tensor([1.0, 0.0, 2.0, 1.0, 1.0, 3.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 2.0])


class Store:
    """Keeps nothing."""

    root = None

    def steps(self):
        return []

    def save(self, *args, **kwargs):
        pass


def trained(name, ranks=None):
    torch.manual_seed(0)
    # In float64: what SASRec rounds off in float32 grows from step to step.
    model, examples = MODELS[name]().double(), MADE[name]()
    optimizer = OPTIMIZERS["sgd"](model.parameters(), lr=0.1)
    # The last of an epoch's batches has one row.
    size = 3 if len(examples) % 3 == 1 else len(examples) - 1
    weights = WEIGHTS if hasattr(examples, "places") else None
    steps = GradientSteps(model, optimizer, examples, batch_size=size, weights=weights)
    more = {}
    if ranks is not None:
        ranks.attach(steps)
        more = {"together": ranks}
    plan = Plan(total_steps=2 * steps.per_epoch, learning_rate=lambda step, passed: 0.02)
    Loop(steps, plan, store=Store(), **more).run()
    return [each.detach().clone() for each in model.parameters()]


def distances(groups):
    return {
        (name, size): apart(trained(name, Ranks(group)), trained(name))
        for name in MODELS
        for size, group in groups.items()
    }


class Noting:
    """Notes the loss of each step that a process takes its part of."""

    def mean(self, losses, count=None):
        part = super().mean(losses, count)
        self.curve.append(float(part.detach()))
        return part


class NotingRanks(Noting, Ranks):
    pass


class NotingAlone(Noting, Together):
    pass


LOAD = Workload(classes=61, dimension=6, batch_size=30, num_samples=20, sampler="uniform")
BEFORE, AFTER = 4, 9


def curve_of(together, folder, steps):
    """Return the losses of a training that goes on from a folder: this process' part."""
    taken, together.curve = steps_of(LOAD, together), []
    plan = Plan(total_steps=steps, learning_rate=lambda step, passed: 0.02)
    loop = Loop(taken, plan, store=CheckpointStore(folder), together=together)
    loop.resume()
    if together.writes:
        with loop.store:
            loop.run()
    else:
        loop.run()
    return torch.tensor(together.curve, dtype=torch.float64)


def resumed(groups):
    """Return the losses after four processes have stopped and 1, 2 or 3 have gone on."""
    found = {}
    for divided in (False, True):
        place = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(place)
        first = Path(place[0]) / "four"
        begun = curve_of(NotingRanks(groups[4], vocabulary_parallel=divided), first, BEFORE)
        dist.all_reduce(begun)
        dist.barrier()
        for size in (1, 2, 3):
            folder = Path(place[0]) / str(size)
            if dist.get_rank() == 0:
                shutil.copytree(first, folder)
            dist.barrier()
            losses = torch.zeros(AFTER - BEFORE, dtype=torch.float64)
            if dist.get_rank() < size:
                together = NotingAlone()
                if size > 1:
                    together = NotingRanks(groups[size], vocabulary_parallel=divided)
                losses = curve_of(together, folder, AFTER)
            dist.all_reduce(losses)
            found[divided, size] = torch.cat([begun, losses])
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(place[0])
    return found


def prepare():
    for name in MODELS:
        trained(name)
    steps_of(LOAD).take(0, 0.01)


def work(groups):
    return distances(groups), resumed(groups)


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    return measured_by_all(request, tmp_path_factory)


def test_an_epoch_is_that_of_one_process(measured):
    for name in MODELS:
        for size in SIZES:
            for rank in range(size):
                assert measured[rank][0][name, size] <= 1e-12, (name, size, rank)


def test_four_processes_stop_and_1_2_or_3_go_on_along_the_same_losses(measured, tmp_path):
    alone = NotingAlone()
    expected = curve_of(alone, tmp_path / "alone", AFTER)
    assert expected[0] > expected[-1]
    for (divided, size), losses in measured[0][1].items():
        torch.testing.assert_close(losses, expected, rtol=2e-6, atol=0, msg=f"{divided} {size}")
