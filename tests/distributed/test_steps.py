"""Steps of a training in several processes: batches with fewer rows than there are processes."""

import pytest
import torch

from tests.distributed.processes import SIZES, run_all
from tests.distributed.test_data_parallel import apart
from widemax.data import Sequences
from widemax.distributed import Ranks
from widemax.models import NextItem, SASRec
from widemax.optim import OPTIMIZERS
from widemax.training.loop import Loop, Plan
from widemax.training.steps import GradientSteps

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


@pytest.fixture(scope="module")
def measured():
    for name in MODELS:
        trained(name)  # compiles what one process has to compile, not four at once
    return run_all(distances)


def test_an_epoch_is_that_of_one_process(measured):
    for name in MODELS:
        for size in SIZES:
            for rank in range(size):
                assert measured[rank][name, size] <= 1e-12, (name, size, rank)
