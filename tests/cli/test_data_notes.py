"""What ``train`` says of data that it may have misread, or cannot judge by."""

import pytest

from widemax.cli import main


def run(capfd, *words):
    """Return the exit code of a command and what it said on stderr."""
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, words)])
    return stopped.value.code or 0, capfd.readouterr().err


@pytest.fixture
def lists(tmp_path):
    path = tmp_path / "lists.txt"
    path.write_text("u0 i1384 i422 i7\nu1 i7 i2\nu2 i7 i9 i1384\nu3 i2 i9\n")
    return path


def test_lists_with_words_for_keys_are_said_to_be_taken_for_a_text(lists, tmp_path, capfd):
    settings = ("--epochs", 1, "--dimension", 4, "--min-count", 1)
    code, said = run(capfd, "train", lists, "--folder", tmp_path / "run", *settings)
    assert code == 0
    assert said.count("is taken for a text; if its lines are user item item") == 1
    assert "--kind lists" in said
    code, said = run(
        capfd, "train", lists, "--kind", "text", "--folder", tmp_path / "text", *settings
    )
    assert code == 0
    assert "taken for a text" not in said


def test_a_user_may_have_several_lines_in_what_may_be_lists(tmp_path, capfd):
    path = tmp_path / "baskets.txt"
    path.write_text("anna tea milk\nbob milk rum\ncleo tea rum\nanna rum\nbob tea\n")
    settings = ("--epochs", 1, "--dimension", 4, "--min-count", 1)
    code, said = run(capfd, "train", path, "--folder", tmp_path / "run", *settings)
    assert code == 0
    assert "if its lines are user item item" in said


def test_a_split_by_time_says_how_much_of_its_test_is_new(tmp_path, capfd):
    path = tmp_path / "log.csv"
    # Of four hours, each has items of its own but for one.
    times = [(user, hour, 1000 * hour + user) for hour in range(4) for user in range(150)]
    rows = [f"u{user},{hour}-{user},{time}" for user, hour, time in times]
    rows += [f"u{user},always,{time - 500}" for user, _, time in times]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    settings = ("--model", "popularity", "--split", "time")
    code, said = run(capfd, "train", path, "--folder", tmp_path / "run", *settings)
    assert code == 0
    assert "% of the targets of the test are items that nobody chose in training" in said
    assert "--item-features" in said
    settings = (*settings, "--where", "item = 'always' or item < '1'")
    code, said = run(capfd, "train", path, "--folder", tmp_path / "last", *settings)
    assert code == 0
    assert "nobody chose" not in said


def test_a_split_of_logs_says_how_lists_are_read(lists, tmp_path, capfd):
    code, said = run(capfd, "train", lists, "--folder", tmp_path / "run", "--split", "last")
    assert code == 2
    assert "--kind lists" in said
    assert len(said.splitlines()) == 1


def test_a_condition_typed_twice_is_refused(lists, tmp_path, capfd):
    twice = ("--where", "qty >= 1", "--where=qty <= 2")
    code, said = run(capfd, "train", lists, "--folder", tmp_path / "run", *twice)
    assert code == 2
    assert "--where can be given once: join conditions by and" in said
    assert len(said.splitlines()) == 1


def test_a_split_by_time_that_asks_hardly_anybody_says_so(tmp_path, capfd):
    path = tmp_path / "log.csv"
    # Each user lives for a moment; two are there before and after.
    rows = [f"u{user},i{item},{10 * user + item}" for user in range(100) for item in range(2)]
    rows += ["u5,i1,895", "u5,i3,995", "u6,i3,996"]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    settings = ("--model", "next-item", "--epochs", 1, "--dimension", 4, "--split", "time")
    code, said = run(capfd, "train", path, "--folder", tmp_path / "run", *settings)
    assert code == 0
    assert "--split time can ask 1 of 100 users, too few to judge by" in said
    assert "--split last asks every user" in said
    assert "inf" not in said.replace("info", "")
