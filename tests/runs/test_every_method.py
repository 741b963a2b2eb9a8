"""Every declared method, and every combination of them, by the command line's own path.

What is allowed trains, evaluates and recommends; what is not is one line and exit code 2. The
cases are read from the declarations: a new method is here without being named.
"""

import itertools
import json
import random

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from widemax.cli import main
from widemax.cli.app import app
from widemax.config import Config
from widemax.declarations import declared, find, names
from widemax.runs.folder.description import check_run

SMALL = ("--steps=2", "--batch-size=64", "--dimension=8", "--validation-size=20", "--test-size=20")
USERS, ITEMS = 40, 30


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A log with times and features of items and users, and a text, in one folder."""
    folder, drawn = tmp_path_factory.mktemp("data"), random.Random(0)
    rows = ["user,item,time"]
    for user in range(USERS):
        # Neighbours on a circle, so that there is something to learn.
        start = drawn.randrange(ITEMS)
        rows += [
            f"u{user},i{(start + step) % ITEMS},{1_600_000_000 + 60 * step}" for step in range(9)
        ]
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    kinds = ["id,kind,title", *(f"i{item},k{item % 3},Item {item}" for item in range(ITEMS))]
    (folder / "items.csv").write_text("\n".join(kinds) + "\n")
    ages = ["id,age", *(f"u{user},a{user % 4}" for user in range(USERS))]
    (folder / "users.csv").write_text("\n".join(ages) + "\n")
    words = [f"w{drawn.randrange(25)}" for _ in range(1500)]
    lines = [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return folder


def flags_of(config, data, **settings):
    """Return the flags of a small run, without those that the configuration has no use for."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    for flag in SMALL:
        if config.has(flag.split("=")[0][2:].replace("-", "_")):
            flags.append(flag)
    for name, file in (("item_features", "items.csv"), ("user_features", "users.csv")):
        if config.has(name) and config.source == "log":
            flags.append(f"--{name.replace('_', '-')}={data / file}")
    if config.has("min_count") and config.values["min_count"] > 1:
        flags.append("--min-count=1")
    return flags


def run(*arguments):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, (arguments, found.output, found.exception)
    return found.stdout


def whole_job(data, folder, *, source="log.csv", **settings):
    """Train, evaluate and recommend as one would type it."""
    kind = "text" if source == "text.txt" else "log"
    config = Config(source=kind, **settings)
    run("train", data / source, "--folder", folder, *flags_of(config, data, **settings))
    figures = json.loads(run("evaluate", folder, "--json"))
    assert figures["examples" if kind == "text" else "users"] > 0
    if kind == "text":
        answer = run("recommend", folder, "--history=w1", "--json", "-k", "3")
    else:
        answer = run("recommend", folder, "--user=u1", "--json", "-k", "3")
    assert len(json.loads(answer)) == 3
    return config


def is_allowed(**settings):
    try:
        Config(source="log", **settings)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("source", ["log.csv", "text.txt"])
@pytest.mark.parametrize("model", names("model"))
def test_every_model(model, source, data, tmp_path):
    whole_job(data, tmp_path / "run", source=source, model=model)


@pytest.mark.parametrize("trainer", names("trainer"))
@pytest.mark.parametrize("model", names("model"))
def test_every_trainer_of_every_model(model, trainer, data, tmp_path, capsys):
    if is_allowed(model=model, trainer=trainer):
        whole_job(data, tmp_path / "run", model=model, trainer=trainer)
    else:
        refused(capsys, data, tmp_path, model=model, trainer=trainer)


def refused(capsys, data, tmp_path, **settings):
    """Check that a combination is one line with a reason, exit code 2, and no folder."""
    flags = [f"--{name}={value}" for name, value in settings.items()]
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(data / "log.csv"), "--folder", str(tmp_path / "run"), *flags])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    (line,) = captured.err.strip().split("\n")
    assert line.startswith("widemax: ")
    assert any(value in line for value in settings.values()), line
    assert not captured.out
    assert not (tmp_path / "run").exists()


def combinations():
    """Yield every head with every sampler and objective, where it has places for them."""
    for head, declaration in declared("head").items():
        slots = [slot for slot in ("sampler", "objective") if slot in declaration.slots]
        for chosen in itertools.product(*(names(slot) for slot in slots)):
            yield {"head": head, **dict(zip(slots, chosen, strict=True))}


COMBINATIONS = list(combinations())
ALLOWED = [each for each in COMBINATIONS if is_allowed(model="next-item", **each)]
REFUSED = [each for each in COMBINATIONS if each not in ALLOWED]


def test_no_declared_method_is_left_out():
    used = {(slot, name) for each in ALLOWED for slot, name in each.items()}
    for kind in ("head", "sampler", "objective"):
        for name in names(kind):
            assert (kind, name) in used, f"{kind} {name} goes with nothing"
    for head, sampler, objective in itertools.product(
        ["sampled"],
        ["uniform", "unigram", "log-uniform", "mixture", "in-batch"],
        names("objective"),
    ):
        wanted = not objective.startswith("full-")
        assert is_allowed(head=head, sampler=sampler, objective=objective) == wanted


@pytest.mark.parametrize("settings", ALLOWED, ids=lambda each: " ".join(each.values()))
def test_every_head_sampler_and_objective_that_is_allowed(settings, data, tmp_path):
    whole_job(data, tmp_path / "run", model="next-item", **settings)


@pytest.mark.parametrize("settings", REFUSED, ids=lambda each: " ".join(each.values()))
def test_every_combination_that_is_not_allowed(settings, data, tmp_path, capsys):
    refused(capsys, data, tmp_path, model="next-item", **settings)


@pytest.mark.parametrize("scorer", names("scorer"))
@pytest.mark.parametrize("head", names("head"))
def test_every_scorer_of_every_head(head, scorer, data, tmp_path, capsys):
    settings = {"model": "youtube-dnn", "head": head, "scorer": scorer}
    if is_allowed(**settings):
        whole_job(data, tmp_path / "run", **settings)
    else:
        refused(capsys, data, tmp_path, **settings)


@pytest.mark.parametrize("head", names("head"))
@pytest.mark.parametrize("model", names("model"))
def test_every_head_of_every_model(model, head, data, tmp_path, capsys):
    if is_allowed(model=model, head=head):
        whole_job(data, tmp_path / "run", model=model, head=head)
    else:
        refused(capsys, data, tmp_path, model=model, head=head)


def as_log(form, rows, path):
    """Write users, items and times as a log in one of the formats."""
    columns = dict(zip(("user", "item", "time"), map(list, zip(*rows, strict=True)), strict=True))
    table = pl.DataFrame(columns)
    if form == "parquet":
        table.write_parquet(path)
    elif form == "csv":
        table.write_csv(path)
    elif form == "jsonl":
        table.write_ndjson(path)
    elif form == "atomic":
        kinds = {"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"}
        table.rename(kinds).write_csv(path, separator="\t")
    elif form == "pairs":
        path.write_text("".join(f"{user} {item}\n" for user, item, _ in rows))
    elif form == "lists":
        of = {user: [item for each, item, _ in rows if each == user] for user, _, _ in rows}
        lines = [" ".join(map(str, [user, *items])) for user, items in of.items()]
        path.write_text("\n".join(lines) + "\n")
    elif form == "duckdb":
        with duckdb.connect(path) as connection:
            connection.execute("create table clicks (user bigint, item bigint, time bigint)")
            connection.executemany("insert into clicks values (?, ?, ?)", rows)
    else:
        raise AssertionError(f"no log in format {form!r}: write one here")


# Those that need a server have their tests where one is started: tests/stores.
@pytest.mark.parametrize("form", [name for name in names("format") if name != "postgresql"])
def test_every_format_of_logs(form, tmp_path):
    rows = [(user, (user + step) % ITEMS, 60 * step) for user in range(USERS) for step in range(9)]
    as_log(form, rows, tmp_path / "log")
    query = ["--query", "select * from clicks"] if form == "duckdb" else []
    run("train", tmp_path / "log", "--folder", tmp_path / "run", *SMALL, *query)
    assert check_run(tmp_path / "run")["kind"] == form
    assert json.loads(run("evaluate", tmp_path / "run", "--json"))["users"] > 0
    assert len(json.loads(run("recommend", tmp_path / "run", "--user=1", "--json", "-k", "3"))) == 3


@pytest.mark.parametrize(
    "name", [name for name in names("export") if "database" not in find("export", name).traits]
)
def test_every_export(name, data, tmp_path):
    whole_job(data, tmp_path / "run", model="next-item", head="full")
    run("export", tmp_path / "run", tmp_path / "exported", f"--to={name}")
    assert (tmp_path / "exported").exists()
