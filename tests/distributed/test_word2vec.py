"""word2vec in several processes: rows move by what they moved in those that touched them."""

import pytest
import torch

from tests.distributed.processes import measured_by_all
from widemax.data import encode_text
from widemax.distributed import Ranks
from widemax.models import SkipGram
from widemax.models.embeddings.kernel_steps import Word2VecSteps

STEPS = 25  # after as many the processes meet


def made():
    generator = torch.Generator().manual_seed(0)
    words = torch.multinomial(1.0 / torch.arange(1.0, 1500), 30_000, True, generator=generator)
    lines = [" ".join(f"w{each}" for each in line.tolist()) for line in words.split(20)]
    sequences, vocabulary = encode_text("\n".join(lines))
    torch.manual_seed(1)
    model = SkipGram.create(vocabulary.counts, dimension=6, num_samples=2)
    return Word2VecSteps(model, sequences, window=2, threads=1, seed=4)


def tables(steps):
    return [
        torch.from_numpy(each).clone() for each in (steps._tables.inputs, steps._tables.outputs)
    ]


class Alone:
    """Does the jobs of one of several processes, and never meets the others."""

    size = 1

    def __init__(self, rank, size):
        self.rank, self.of = rank, size

    def own_jobs(self, jobs):
        return jobs[self.rank :: self.of]


def trained_by(together):
    steps = made()
    if together is not None:
        steps.together = together
    before = tables(steps)
    for step in range(STEPS):
        steps.take(step, 0.05)
    return before, tables(steps)


def brute_force(size):
    before = made()
    start, found = tables(before), [trained_by(Alone(rank, size))[1] for rank in range(size)]
    averaged, errors = [], []
    for place, table in enumerate(start):
        moved = torch.stack([each[place] - table for each in found])
        touched = (moved != 0).any(2).sum(0).clamp(min=1)
        gain = touched.clamp(max=1.75) / touched
        averaged.append(table + moved.sum(0) * gain[:, None])
        # A move is sent in units of its row's largest / 32,767, to the nearest; then float32.
        largest = moved.abs().amax(2).sum(0) * gain
        errors.append((largest / 65_534)[:, None] + 4e-7)
    return averaged, errors


def work(groups):
    found = {}
    for size in groups.keys() & {2, 3}:
        group = groups[size]
        ranks = Ranks(group)
        steps = made()
        ranks.attach(steps)
        for step in range(STEPS):
            steps.take(step, 0.05)
        steps.publish()
        found[size] = tables(steps), steps.model.encoder.weight.detach().clone()
    return found


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    expected = {size: brute_force(size) for size in (2, 3)}
    return expected, measured_by_all(request, tmp_path_factory)


def test_rows_move_by_less_than_twice_the_mean_where_they_were_touched(measured):
    expected, found = measured
    for size in (2, 3):
        for rank in range(size):
            tables, inputs = found[rank][size]
            for table, wanted, error in zip(tables, *expected[size], strict=True):
                assert ((table - wanted).abs() <= error).all()
            # Bit for bit the same in all processes.
            for table, first in zip(tables, found[0][size][0], strict=True):
                assert torch.equal(table, first)
            assert torch.equal(inputs, tables[0][:, :6])
