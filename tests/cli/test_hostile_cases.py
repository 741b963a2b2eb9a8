"""A few of the cases of ``python -m tests.hostile``, so that it stays runnable."""

from collections import Counter

import pytest

from tests.hostile import Workshop, run_case, run_kill


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"))


def test_hostile_input_succeeds_or_is_refused_in_one_line(workshop):
    faults = [fault for number in range(12) if (fault := run_case(workshop, number, "few")[2])]
    assert not faults, "\n".join(faults)


def test_what_was_there_is_whole_after_a_kill(workshop):
    durations, verbs = {}, Counter()
    for number in range(4):
        verb, _, fault = run_kill(workshop, number, "few", durations)
        assert not fault
        verbs[verb] += 1
    assert set(verbs) == {"train", "resume", "export", "index"}
