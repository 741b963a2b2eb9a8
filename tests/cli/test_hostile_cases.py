"""A few of the cases of ``python -m tests.hostile``, so that it stays runnable."""

import shutil

import pytest

from tests.hostile import Workshop, run_case
from tests.kills import LOST, UNREADABLE, WRONG, Kills, Victim
from widemax.training.checkpoints import CheckpointStore


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def kills(workshop):
    return Kills(workshop, "few", ["word2vec"])


def test_hostile_input_succeeds_or_is_refused_in_one_line(workshop):
    faults = [fault for number in range(12) if (fault := run_case(workshop, number, "few")[2])]
    assert not faults, "\n".join(faults)


def test_what_was_there_is_whole_after_a_kill(kills, tmp_path):
    for number, verb in enumerate(["train", "resume", "export", "index"]):
        (tmp_path / verb).mkdir()
        kill = kills.run(number, tmp_path / verb)
        assert kill.verb == verb
        assert not kill.broken


def lose_checkpoint(victim):
    shutil.rmtree(newest(victim))


def damage_checkpoint(victim):
    file = newest(victim) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")


def cut_output(victim):
    victim.target.write_bytes(victim.target.read_bytes()[:-5])


def cut_vocabulary(victim):
    file = victim.run / "vocabulary.parquet"
    file.write_bytes(file.read_bytes()[:-5])


def newest(victim):
    return max((victim.run / "checkpoints").glob("step-*"))


@pytest.mark.parametrize(
    ("spoil", "verb", "how", "kind"),
    [
        (lose_checkpoint, "resume", "", LOST),
        (damage_checkpoint, "resume", "", LOST),
        (cut_output, "export", "word2vec", WRONG),
        (cut_vocabulary, "export", "word2vec", UNREADABLE),
    ],
)
def test_what_a_kill_would_break_is_seen(kills, tmp_path, spoil, verb, how, kind):
    usual = kills.usual(verb, how, tmp_path / "whole")
    victim = Victim(kills, verb, how, tmp_path / "victim")
    steps = CheckpointStore(victim.run).steps()
    spoil(victim)
    assert kind in {found for found, _ in victim.faults(steps, usual)}
