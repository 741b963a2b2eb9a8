"""A host that is cut off in mid-training: the others end, and so does it."""

import os
import shutil
import subprocess

import pytest

from tests import forked
from tests.distributed.test_torchrun import (
    alone,  # noqa: F401
    command,
    environment,
    finished,
    log,  # noqa: F401
    wait_for,
)
from widemax.runs.api import load

HOSTS = {"wm-test-0": "10.213.77.1", "wm-test-1": "10.213.77.2"}


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def hosts():
    """Make two network namespaces that see each other, and nothing else."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    names = list(HOSTS)
    try:
        try:
            for name in names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", "wm0", "netns", names[0], "type", "veth", "peer", "name",
                "wm1", "netns", names[1])  # fmt: skip
            for place, (name, address) in enumerate(HOSTS.items()):
                within = ("ip", "netns", "exec", name, "ip")
                run(*within, "addr", "add", f"{address}/24", "dev", f"wm{place}")
                run(*within, "link", "set", f"wm{place}", "up")
                run(*within, "link", "set", "lo", "up")
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


# Moves into a network namespace before anything is computed, as ``ip netns exec`` does.
WITHIN = """
import ctypes, os, sys
from widemax.cli import main
CLONE_NEWNET = 0x40000000
place = os.open(f"/var/run/netns/{sys.argv[1]}", os.O_RDONLY)
assert ctypes.CDLL(None).setns(place, CLONE_NEWNET) == 0
main(sys.argv[2:])
"""


def test_a_host_that_is_cut_off_ends_all(log, alone, hosts, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    words = [*command(log, folder, 10**6, checkpoint_every=5), "--rank-timeout", "10"]
    started = []
    for rank, name in enumerate(hosts):
        own = environment(
            RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR=HOSTS[hosts[0]],
            MASTER_PORT="29611",
            GLOO_SOCKET_IFNAME=f"wm{rank}",
        )
        started.append(forked.Program(["-c", WITHIN, name, *words], env=own))
    wait_for(folder / "checkpoints" / "step-00000005", started[0])
    run("ip", "netns", "exec", hosts[1], "ip", "link", "set", "wm1", "down")
    for rank, process in enumerate(started):
        code, text = finished(process, 60)
        assert code == 2, text
        lines = [line for line in text.splitlines() if f"rank {rank} stops, for" in line]
        assert len(lines) == 1, text
        if rank == 0:
            assert "for rank 1 of 2 has ended or does not answer" in lines[0]
    assert load(folder).recommend(["i1"], k=1)
