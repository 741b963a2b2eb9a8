"""Bytes that training steps send, as they are counted, are those of the formulas of a plan."""

import pytest
import torch

from tests.distributed.processes import SIZES, measured_by_all
from widemax.distributed import Ranks
from widemax.planning.measuring import steps_of, zipf_popularity
from widemax.planning.memory import table_bytes
from widemax.planning.plan import expected_traffic
from widemax.planning.traffic import (
    AskedRows,
    TouchedRows,
    copied_traffic,
    divided_full_traffic,
    divided_traffic,
)
from widemax.planning.workload import Workload

STEPS, BATCH, HISTORY = 3, 50, 4
KINDS = {
    "in-batch": {"sampler": "in-batch"},
    "drawn": {"sampler": "log-uniform", "num_samples": 40},
    "no bias": {"sampler": "uniform", "num_samples": 40, "bias": False},
    "full": {"head": "full"},
}
# A hundred times the classes, twice the width.
TABLES = ((601, 8), (60_101, 8), (60_101, 16))
CASES = [
    (kind, divided, *table)
    for kind in KINDS
    for divided in (False, True)
    for table in TABLES
    if kind in ("in-batch", "drawn") or table == TABLES[0]
]


def load_of(kind, classes, dimension):
    return Workload(
        classes=classes,
        dimension=dimension,
        batch_size=BATCH,
        max_history=HISTORY,
        popularity=zipf_popularity(classes),
        **KINDS[kind],
    )


def counted(kind, divided, classes, dimension, group):
    """Return the bytes, rounds and memory of some steps; what the formulas say; and the plan."""
    ranks = Ranks(group, vocabulary_parallel=divided)
    load = load_of(kind, classes, dimension)
    steps, drawn = steps_of(load, ranks), []
    if kind != "full":
        sample = steps.model.head.sampler.sample

        def noting(*args, **kwargs):
            found = sample(*args, **kwargs)
            drawn.append(found.ids)
            return found

        steps.model.head.sampler.sample = noting
    found = []
    for step in range(STEPS):
        before = ranks.wire.bytes_sent, ranks.wire.rounds
        steps.take(step, 0.01)
        ranks.agreed(0.0, 0)
        sent = ranks.wire.bytes_sent - before[0], ranks.wire.rounds - before[1]
        said = by_formula(load, divided, steps, step, drawn, ranks)
        found.append((sent, (said.total, said.rounds)))
    size = sum(each.nbytes for each in steps.model.parameters())
    expected = expected_traffic(load, ranks.size, divided=divided)
    return found, size, expected.total


def by_formula(load, divided, steps, step, drawn, ranks):
    """Return what the formulas say where the ids of each process are known."""
    n, rank, width = ranks.size, ranks.rank, load.dimension
    batches = [steps.examples.batch(rows) for rows in torch.tensor_split(steps._rows(step), n)]
    read = [each.context[each.context >= 0].unique() for each in batches]
    scored = [
        torch.cat([each.targets, drawn[step] if drawn else each.targets]).unique()
        for each in batches
    ]
    rows = [len(each.targets) for each in batches]
    gathered = max(rows) if load.sampler == "in-batch" and load.head == "sampled" else None
    tables = [(read, width), *((scored, each) for each in load.class_widths)]
    if not divided:
        if load.head == "full":
            inputs = TouchedRows(max(map(len, read)), width)
            dense = 4 * sum(load.class_widths) * load.classes
            return copied_traffic(n, [inputs], parameters=len(tables), dense=dense)
        touched = [TouchedRows(max(map(len, ids)), each) for ids, each in tables]
        return copied_traffic(n, touched, parameters=len(tables), gathered_targets=gathered)
    held = -(-load.classes // n)
    asked = [
        AskedRows(
            int((ids[rank] // held != rank).sum()),
            sum(int((ids[other] // held == rank).sum()) for other in range(n) if other != rank),
            each,
        )
        for ids, each in tables
    ]
    if load.head == "full":
        return divided_full_traffic(
            n, asked[0], width=width, rows=rows[rank], most_rows=max(rows), batch=sum(rows)
        )
    return divided_traffic(n, asked, gathered_targets=gathered)


def work(groups):
    return {
        (*case, size): counted(*case, group) for case in CASES for size, group in groups.items()
    }


def prepare():
    for kind in KINDS:
        steps_of(load_of(kind, *TABLES[0])).take(0, 0.01)


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    return measured_by_all(request, tmp_path_factory)


def test_steps_send_what_the_formulas_say(measured):
    for rank, found in enumerate(measured):
        assert len(found) == len(CASES) * sum(rank < size for size in SIZES)
        for case, (steps, _, _) in found.items():
            for sent, said in steps:
                assert sent == said, (case, rank)


def test_bytes_follow_rows_and_width_and_not_the_number_of_classes(measured):
    few, many, wide = TABLES
    for kind in ("in-batch", "drawn"):
        for divided in (False, True):
            for size in SIZES:
                sent = [
                    sum(
                        sum(step[0][0] for step in measured[rank][kind, divided, *table, size][0])
                        for rank in range(size)
                    )
                    for table in (few, many, wide)
                ]
                assert sent[1] < 2 * sent[0]  # more of the rows are distinct: that is all
                assert 1.5 * sent[1] < sent[2] < 2 * sent[1]


def test_what_is_expected_is_near_what_is_counted(measured):
    for kind, divided, classes, dimension in CASES:
        for size in SIZES:
            case = (kind, divided, classes, dimension, size)
            steps = zip(*(measured[rank][case][0] for rank in range(size)), strict=True)
            most = sum(max(sent for (sent, _), _ in of_ranks) for of_ranks in steps) / STEPS
            assert measured[0][case][2] == pytest.approx(most, rel=0.2), case


def test_tables_take_what_the_plan_says(measured):
    for kind, divided, classes, dimension in CASES:
        for size in SIZES:
            held = -(-classes // size) if divided else classes
            said = table_bytes(load_of(kind, classes, dimension), held)
            largest = max(
                measured[rank][kind, divided, classes, dimension, size][1] for rank in range(size)
            )
            assert largest == said
