"""Every retrieval model from a log to recommendations, through the folder of a run."""

import hashlib
import json
import shutil

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests.runs.settings import config_with
from widemax.cli.app import app
from widemax.runs.training.preparing import prepare

MODELS = [
    "airbnb",
    "ease",
    "eges",
    "ials",
    "item-knn",
    "item2vec",
    "mind",
    "popularity",
    "sasrec",
    "sdm",
    "two-tower",
    "youtube-dnn",
]
NUM_USERS, NUM_ITEMS, LENGTH = 300, 40, 8
NEW_ITEMS = 10


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Users of two tastes: those of the first choose even items, the others odd ones."""
    folder = tmp_path_factory.mktemp("log")
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(NUM_ITEMS // 2, (NUM_USERS, LENGTH), generator=generator) * 2
    items = drawn + (torch.arange(NUM_USERS) % 2)[:, None]
    users = torch.arange(NUM_USERS)[:, None].expand_as(items)
    times = 1_700_000_000 + 60 * torch.arange(LENGTH).expand_as(items)
    names = [f"i{item}" for item in items.flatten().tolist()]
    pl.DataFrame(
        {
            "user_id": [f"u{user}" for user in users.flatten().tolist()],
            "item_id": names,
            "timestamp": times.flatten().tolist(),
        }
    ).write_csv(folder / "log.csv")
    taste = ["even" if item % 2 == 0 else "odd" for item in range(NUM_ITEMS + NEW_ITEMS)]
    catalogue = pl.DataFrame(
        {"item_id": [f"i{item}" for item in range(NUM_ITEMS + NEW_ITEMS)], "taste": taste}
    )
    catalogue.write_csv(folder / "items.csv")
    sex = ["f" if user % 2 == 0 else "m" for user in range(NUM_USERS)]
    pl.DataFrame({"user_id": [f"u{user}" for user in range(NUM_USERS)], "sex": sex}).write_csv(
        folder / "users.csv"
    )
    return folder


def config_for(model, log, **given):
    options = {
        "item_features": str(log / "items.csv"),
        "user_features": str(log / "users.csv"),
        "dimension": 8,
        "epochs": 6,
        "batch_size": 64,
        "max_history": 8,
        "threads": 1,
        **({"learning_rate": 0.02} if model not in ("airbnb", "eges", "item2vec") else {}),
        **({"learning_rate": 0.2} if model in ("airbnb", "eges", "item2vec") else {}),
        **({"hidden_size": 16} if model == "two-tower" else {}),
        # A gain is of lengths, which cosines do not have.
        **({"similarity": "dot", "temperature": 1.0, "bias": False} if model == "mind" else {}),
    }
    return config_with(model, **{**options, **given})


@pytest.fixture(scope="module")
def runs(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        model: wm.train(log / "log.csv", config_for(model, log), folder=folder / model)
        for model in MODELS
    }


@pytest.mark.parametrize("model", [name for name in MODELS if name != "popularity"])
def test_the_taste_of_a_user_is_found(runs, model):
    report = runs[model].evaluate_recommendations(ks=(10, 20))
    # The others choose the checkpoint.
    assert report.users == NUM_USERS / 2
    # Of 20 items of the user's taste some are seen: half by chance, nearly all by taste.
    popularity = runs["popularity"].evaluate_recommendations(ks=(20,)).metrics()["recall@20"]
    assert report.metrics()["recall@20"] > popularity + 0.15


@pytest.mark.parametrize("model", [name for name in MODELS if name != "popularity"])
def test_recommendations_follow_a_history(runs, model):
    found = runs[model].recommend(["i2", "i8", "i14"], k=5)
    even = sum(int(str(each.key)[1:]) % 2 == 0 for each in found)
    assert len(found) == 5
    assert even >= 4
    assert not {"i2", "i8", "i14"} & {each.key for each in found}


@pytest.mark.parametrize("model", ["eges", "two-tower"])
def test_an_item_nobody_chose_is_recommended_by_its_features(runs, model):
    run = runs[model]
    new = {f"i{NUM_ITEMS + item}" for item in range(NEW_ITEMS)}
    assert new <= set(run.vocabulary.keys)
    for parity, history in enumerate((["i2", "i8", "i14"], ["i3", "i9", "i15"])):
        ranked = [each.key for each in run.recommend(history, k=len(run.vocabulary))]
        best = [key for key in ranked if key in new][: NEW_ITEMS // 2]
        assert sum(int(str(key)[1:]) % 2 == parity for key in best) >= NEW_ITEMS // 2 - 1


@pytest.mark.parametrize("model", MODELS)
def test_a_run_is_loaded_as_it_was(runs, model):
    again = wm.load(runs[model].folder)
    assert again.recommend(["i2", "i8"], k=3) == runs[model].recommend(["i2", "i8"], k=3)


def test_the_gain_of_interests_is_learned_and_kept(runs):
    gain = runs["mind"].model.encoder.gain.item()
    assert abs(gain - runs["mind"].config.initial_gain) > 0.01
    assert wm.load(runs["mind"].folder).model.encoder.gain.item() == gain


@pytest.mark.parametrize("model", ["mind", "sasrec", "two-tower", "youtube-dnn", "eges"])
def test_a_stopped_run_goes_on_to_the_bit(log, tmp_path, model):
    config = config_for(model, log, epochs=2, checkpoint_every=3)
    whole = wm.train(log / "log.csv", config, folder=tmp_path / "whole")
    training = prepare(log / "log.csv", config, tmp_path / "parts")
    take = training.loop.steps.take

    def stopped_at_five(step, rate):
        if step == 5:
            raise RuntimeError("stopped")
        take(step, rate)

    training.loop.steps.take = stopped_at_five
    with pytest.raises(RuntimeError, match="stopped"):
        training.run()
    resumed = wm.train(log / "log.csv", config, folder=tmp_path / "parts", resume=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_busy_users_have_no_more_examples_than_asked_for(log, tmp_path):
    def examples(**given):
        config = config_for("youtube-dnn", log, validation_size=0, test_size=0, **given)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return prepare(log / "log.csv", config, folder).loop.steps.examples

    assert len(examples()) == NUM_USERS * (LENGTH - 1)
    few = examples(max_examples=3)
    assert len(few) == NUM_USERS * 3
    users = few.batch(torch.arange(len(few))).users
    assert users.bincount().tolist() == [3] * NUM_USERS
    other = examples(max_examples=3, seed=1)
    assert not torch.equal(few.positions, other.positions)
    assert torch.equal(few.positions, examples(max_examples=3).positions)


def test_features_of_a_user_are_read(runs):
    run = runs["youtube-dnn"]
    by_user = {user: run.recommend(["i2"], k=3, user=user) for user in ("u0", "u1", "nobody")}
    assert by_user["u0"] != by_user["u1"]
    assert by_user["nobody"] == run.recommend(["i2"], k=3)


def test_damaged_features_are_an_error(log, tmp_path):
    run = wm.train(log / "log.csv", config_for("two-tower", log, epochs=1), folder=tmp_path / "run")
    path = run.folder / "item_features.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "fields": "none"}))
    with pytest.raises(ValueError, match=r"item_features\.json was changed"):
        wm.load(run.folder)
    # Even where the sums agree, what is no schema is an error.
    about = json.loads((run.folder / "run.json").read_text())
    about["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (run.folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="fields"):
        wm.load(run.folder)


@pytest.mark.parametrize("model", ["mind", "two-tower", "popularity", "youtube-dnn"])
def test_sentences_are_for_language_models(runs, model):
    run = runs[model]
    named = f"model {model}"
    with pytest.raises(
        ValueError, match=rf"{named} does not score sentences: .*n-gram, nnlm, lstm"
    ):
        run.score("i2 i4 i6")
    with pytest.raises(ValueError, match=rf"{named} cannot continue a text: .*n-gram, nnlm, lstm"):
        run.generate("i2")


@pytest.mark.parametrize("model", ["mind", "two-tower", "youtube-dnn", "item2vec", "eges"])
def test_an_index_answers_as_the_model_does(log, tmp_path, model):
    run = wm.train(log / "log.csv", config_for(model, log, epochs=1), folder=tmp_path / "run")
    history = ["i2", "i8"]
    exact = run.recommend(history, k=5)
    built = run.build_index("ivf", recall=1.0)
    assert {each.purpose for each in built} >= {"similar"}
    again = wm.load(run.folder)
    found = again.recommend(history, k=5)
    assert [each.key for each in found] == [each.key for each in exact]
    assert [each.score for each in found] == pytest.approx([each.score for each in exact], rel=1e-5)
    assert again.recommend(history, k=5, exact=True) == exact
    # By their scores: new items of the same features are equally near.
    near = [each.score for each in again.similar("i2", k=3)]
    wanted = [each.score for each in again.similar("i2", k=3, exact=True)]
    assert near == pytest.approx(wanted, rel=1e-5)


def test_the_index_of_another_model_is_refused(log, tmp_path):
    folders = [tmp_path / name for name in ("one", "other")]
    for seed, folder in enumerate(folders):
        config = config_for("youtube-dnn", log, epochs=1, seed=seed)
        wm.train(log / "log.csv", config, folder=folder)
    wm.load(folders[0]).build_index("exact")
    shutil.copytree(folders[0] / "index", folders[1] / "index")
    with pytest.raises(ValueError, match="of another model"):
        wm.load(folders[1]).recommend(["i2"])


def test_the_verbs(log, tmp_path):
    folder = tmp_path / "run"
    flags = ["--model", "two-tower", "--epochs", "2", "--dimension", "8", "--threads", "1"]
    features = ["--item-features", str(log / "items.csv")]

    def called(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.stdout

    called("train", log / "log.csv", "--folder", folder, *flags, *features)
    assert "Recall" in called("evaluate", folder)
    assert "tail Recall" in called("evaluate", folder, "--by", "popularity")
    figures = json.loads(called("evaluate", folder, "--json"))
    assert figures["users"] == NUM_USERS / 2
    assert "exact, recall 1 by definition" in called("index", folder, "--kind", "exact")
    found = json.loads(called("recommend", folder, "--history", "i2", "--exact", "--json"))
    assert len(found) == 10
    assert len(json.loads(called("recommend", folder, "--user", "u3", "--json"))) == 10


@pytest.mark.parametrize("model", ["eges", "mind", "sasrec", "sdm", "two-tower", "youtube-dnn"])
def test_a_run_goes_on_with_the_log_of_the_next_day(log, tmp_path, model, runs):
    tomorrow = tmp_path / "tomorrow.csv"
    rows = [f"u{user},{item}" for user in range(40) for item in ("i2", "i4", "i_new")]
    tomorrow.write_text("user_id,item_id\n" + "\n".join(rows))
    old = runs[model]
    config = config_for(model, log, epochs=1)
    training = prepare(tomorrow, config, tmp_path / "next", vectors=old)
    known = [key for key in old.vocabulary.keys if key != "i_new"]
    new, before = training.model.state_dict(), old.model.state_dict()
    names = {"encoder.weight", "encoder.items.weight", "head.scorer.weight"} & new.keys()
    assert names
    for name in names:
        own = training.source.vocabulary.encode(known)
        assert torch.equal(new[name][own], before[name][old.vocabulary.encode(known)]), name
    assert "i_new" in set(training.source.vocabulary.keys)
    training.run()
    assert wm.load(tmp_path / "next").recommend(["i2", "i4"], k=3)
