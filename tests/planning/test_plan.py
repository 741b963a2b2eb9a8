"""``widemax plan``: memory by tensors, expected rows by simulation, time by what it is made of."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from widemax.cli.app import app
from widemax.cli.app import program as program_of
from widemax.planning import Cluster, Costs, Workload, plan
from widemax.planning.costs import OPERATIONS
from widemax.planning.memory import state_bytes, table_bytes
from widemax.planning.workload import STATES

WIDE = ["plan", "--classes", "1e9", "--dimension", "128", "--nodes", "64"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_it_says_memory_bytes_time_and_bottleneck():
    found = run(*WIDE, "--memory", "256GB")
    assert found.exit_code == 0, found.output
    for text in (
        "1,000,000,000 classes of 128 numbers on 64 machines",
        "memory of a process",
        "sent in a step",
        "time of a step",
        "bottleneck",
        "--vocabulary-parallel",
    ):
        assert text in found.output
    assert max(map(len, found.output.splitlines()[:-1])) <= 100


def test_json_has_what_the_table_shows():
    found = json.loads(run(*WIDE, "--memory", "256GB", "--json").output)
    assert found["best"] == "divided"
    copied, divided = found["arrangements"]["copied"], found["arrangements"]["divided"]
    assert (copied["fits"], copied["bottleneck"], divided["fits"]) == (False, "memory", True)
    assert divided["memory"]["tables"] * 64 == copied["memory"]["tables"] == 4 * 257 * 10**9
    assert divided["step_seconds"] == pytest.approx(sum(divided["seconds"].values()))


@pytest.mark.parametrize("optimizer", STATES)
@pytest.mark.parametrize("bias", [False, True])
def test_memory_is_that_of_the_tensors(optimizer, bias):
    from widemax.planning.measuring import steps_of

    load = Workload(
        classes=501, dimension=6, batch_size=20, sampler="uniform", num_samples=9,
        optimizer=optimizer, bias=bias,
    )  # fmt: skip
    steps = steps_of(load)
    steps.take(0, 0.01)
    assert sum(each.nbytes for each in steps.model.parameters()) == table_bytes(load, 501)
    state = [
        tensor.nbytes
        for each in steps.optimizer.state.values()
        for tensor in each.values()
        if tensor.dim()
    ]
    assert sum(state) == state_bytes(load, 501)


def test_expected_rows_are_those_of_a_simulation():
    load = Workload(classes=3000, batch_size=200, max_history=5, sampler="uniform", num_samples=100)
    drawn = np.random.default_rng(0)
    shares = (1 / np.arange(1, 3001)) / (1 / np.arange(1, 3001)).sum()
    read, scored, of_first = [], [], []
    for _ in range(300):
        read.append(len(set(drawn.choice(3000, 250, p=shares))))
        targets = set(drawn.choice(3000, 50, p=shares))
        both = targets | set(drawn.choice(3000, 100, replace=False))
        scored.append(len(both))
        of_first.append(sum(each < 750 for each in both))
    found, first = load.touched(50), load.touched(50, (0.0, 0.25))
    assert found.inputs == pytest.approx(np.mean(read), rel=0.02)
    assert found.classes == pytest.approx(np.mean(scored), rel=0.02)
    assert first.classes == pytest.approx(np.mean(of_first), rel=0.02)


def test_bytes_do_not_grow_with_the_classes_where_rows_are_drawn():
    few, many = (
        plan(Workload(classes=classes, batch_size=4096), Cluster(nodes=8))
        for classes in (10**7, 10**9)
    )
    assert many.copied.traffic.total < 1.3 * few.copied.traffic.total
    assert many.divided.traffic.total < 1.3 * few.divided.traffic.total
    exact = plan(Workload(classes=10**7, batch_size=4096, head="full"), Cluster(nodes=8))
    # The exact softmax with copies adds up a gradient of the table's size.
    assert exact.copied.traffic.bytes["dense gradients"] == 2 * 7 * 4 * 65 * 10**7 / 8
    assert exact.divided.traffic.total < 0.01 * exact.copied.traffic.total


def test_a_slow_network_is_the_bottleneck_and_cores_are_shared():
    load = Workload(classes=10**6, batch_size=4096)
    fast, slow, far = (
        plan(load, Cluster(nodes=8, **network)).copied
        for network in ({"bandwidth": 1e12, "latency": 0.0}, {"bandwidth": 1e7}, {"latency": 0.1})
    )
    assert fast.bottleneck not in ("bandwidth", "latency")
    assert (slow.bottleneck, far.bottleneck) == ("bandwidth", "latency")
    own, shared = (
        plan(load, Cluster(processes=8, cores=cores)).copied.step_seconds for cores in (8, 2)
    )
    assert shared == pytest.approx(4 * own)


def test_costs_are_found_again_from_the_steps_that_they_make():
    true = Costs(name="", each={name: 2.5 * cost for name, cost in Costs.typical().each.items()})
    true.each["scores"] *= 3
    work, clusters, seconds = [], [], []
    for processes in (1, 2):
        for size, width in ((64, 16), (512, 64), (4096, 128), (4096, 16)):
            load = Workload(classes=10**5, dimension=width, batch_size=size)
            cluster = Cluster(processes=processes, cores=1)
            made = plan(load, cluster, true).copied
            work.append(made.work)
            clusters.append(cluster)
            seconds.append(made.step_seconds)
    found = Costs.fitted("", work, clusters, seconds)
    assert found.each.keys() == OPERATIONS.keys()
    assert found.each["scores"] == pytest.approx(true.each["scores"], rel=0.3)
    # What was not measured: four processes, of which two share a core.
    load, four = Workload(classes=10**5, batch_size=2048), Cluster(processes=4, cores=2)
    predicted, wanted = (plan(load, four, each).copied.step_seconds for each in (found, true))
    assert predicted == pytest.approx(wanted, rel=0.2)
    with pytest.raises(ValueError, match="nodes must be 1"):
        Costs.fitted("", work[:1], [Cluster(nodes=2)], seconds[:1])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--classes", "1"], "classes must be between 2 and"),
        (["--classes", "1.5"], "classes must be a whole number"),
        (["--classes", "9", "--nodes", "0"], "nodes must be between 1 and"),
        (["--classes", "9", "--nodes", "60000", "--processes", "60000"], "processes in all"),
        (["--classes", "9", "--bandwidth", "fast"], "bandwidth must be a rate such as 10Gbit"),
        (["--classes", "9", "--latency", "50"], "latency must be a time such as 50us"),
        (["--classes", "9", "--memory", "much"], "memory must be a size such as 8GB"),
        (["--classes", "9", "--head", "tree"], "head must be one of sampled, full, got 'tree'"),
        (["--classes", "9", "--sampler", "best"], "sampler must be one of unigram"),
        (["--classes", "9", "--optimizer", "lion"], "optimizer must be one of sgd"),
        (["--classes", "9", "--dimension", "0"], "dimension must be between 1 and"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_said(words, why):
    with pytest.raises(ValueError, match=why):
        program_of(["plan"])(["plan", *words], standalone_mode=False)


def test_few_classes_are_not_divided():
    found = plan(Workload(classes=5), Cluster(processes=4))
    assert found.divided is None
    assert not found.best.divided
    assert "rows divided" not in run("plan", "--classes", 5, "--processes", 4).output


def test_it_starts_without_torch():
    program = (
        "import sys\nfrom widemax.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as stopped:\n    assert not stopped.code\n"
        "print({'torch', 'numba', 'polars'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *WIDE], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
