"""Runs on text: each model from a file to its answers."""

import json
import math
import os
import re
import signal

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests.runs.run_metrics import check_stored_metrics
from widemax.cli.app import app
from widemax.runs.source.reading import read_configured
from widemax.runs.source.splitting import split_source
from widemax.runs.training.preparing import prepare
from widemax.storage.manifest import file_sha256
from widemax.training.checkpoints import CheckpointStore

SMALL = {"dimension": 8, "validation_size": 200, "threads": 1, "seed": 3}
NEURAL = {"epochs": 4, "batch_size": 64, "hidden_size": 12, "head": "full", "learning_rate": 0.03}
MODELS = {
    "skip-gram": {**SMALL, "min_count": 1, "epochs": 3, "subsample": 0.0},
    "cbow": {**SMALL, "min_count": 1, "epochs": 3, "subsample": 0.0},
    "nnlm": {**SMALL, **NEURAL, "max_history": 3},
    "lstm": {**SMALL, **NEURAL, "max_history": 8},
    "n-gram": {"validation_size": 200, "order": 3},
}
CAUSAL = ("nnlm", "lstm", "n-gram")


def config_of(model, **options):
    return wm.Config(model=model, **{**MODELS[model], **options})


def sentences(number, seed=0):
    """Lines of a small grammar: what may follow what is known."""
    parts = [["the", "a"], ["cat", "dog", "cow"], ["sees", "hears"], ["the", "a"], ["rat", "hen"]]
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(60, (number, len(parts)), generator=generator).tolist()
    return [
        " ".join(words[place % len(words)] for words, place in zip(parts, row, strict=True))
        for row in chosen
    ]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "text"
    # A word that stands there once is unknown to models of language.
    path.write_text("\n".join(["the gnu sees a rat", *sentences(400)]) + "\n")
    return path


@pytest.fixture(scope="module")
def runs(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: wm.train(text, config_of(name), folder=folder / name) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_what_it_was_when_it_is_loaded_again(name, runs):
    run = wm.load(runs[name].folder)
    assert (type(run.model).__name__, run.config.model) == (type(runs[name].model).__name__, name)
    check_stored_metrics(run)
    assert run.evaluate().examples >= 100


@pytest.mark.parametrize("name", CAUSAL)
def test_the_grammar_is_learnt_well_enough_to_beat_the_counts_of_words(name, runs):
    counts = runs[name].vocabulary.counts.double()
    share = counts / counts.sum()
    assert runs[name].evaluate().loss < -(share * share.clamp(min=1e-9).log()).sum() - 0.3


@pytest.mark.parametrize("name", [name for name in MODELS if name != "n-gram"])
def test_words_have_vectors(name, runs, tmp_path):
    run = runs[name]
    found = run.similar("cat", k=3)
    assert len(found) == 3
    assert found[0].score >= found[1].score >= found[2].score
    vectors = torch.nn.functional.normalize(run.vectors().vectors.double(), dim=-1)
    a, b, c = run.vocabulary.encode(["cat", "dog", "rat"]).tolist()
    cosines = vectors @ torch.nn.functional.normalize(vectors[b] - vectors[a] + vectors[c], dim=0)
    cosines[[a, b, c]] = -2
    (best,) = run.analogy("cat", "dog", "rat", k=1)
    assert best.key == run.vocabulary.decode([int(cosines.argmax())])[0]
    assert best.score == pytest.approx(float(cosines.max()), abs=1e-5)
    run.export(tmp_path / "vectors.txt")
    kept = wm.vectors.read_word2vec_text(tmp_path / "vectors.txt")
    torch.testing.assert_close(kept.vectors, run.vectors().vectors)


def test_counts_are_no_vectors(runs, tmp_path):
    run = runs["n-gram"]
    for ask in (
        lambda: run.similar("cat"),
        lambda: run.analogy("cat", "dog", "rat"),
        lambda: run.export(tmp_path / "file"),
    ):
        with pytest.raises(
            ValueError, match=r"model n-gram has no vectors to compare: .*; recommend"
        ):
            ask()
    with pytest.raises(ValueError, match=r"^model n-gram cannot be exported to onnx: it has no "):
        run.export(tmp_path / "file", to="onnx")
    with pytest.raises(ValueError, match=r"^model n-gram has no class vectors"):
        run.export(tmp_path / "file", to="faiss")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("name", CAUSAL)
def test_a_sentence_is_scored_word_by_word(name, runs):
    run = runs[name]
    scored = run.score("the zebra sees a rat")
    assert [word for word, _ in scored] == ["the", "zebra", "sees", "a", "rat", "<eos>"]
    assert scored == [
        (word if word != "<unk>" else "zebra", value)
        for word, value in run.score("the <unk> sees a rat")
    ]
    ids = run.vocabulary.encode([word for word, _ in scored])
    reach = 15 if name == "n-gram" else run.config.max_history
    for place, (_, value) in enumerate(scored):
        # Lines are one stream to neural models: another one has ended before.
        before = ids[:0] if name == "n-gram" else ids[-1:]
        context = torch.cat([torch.full((reach,), -1), before, ids[:place]])[-reach:][None]
        with torch.no_grad():
            whole = run.model.head.log_prob(run.model.encode(context))[0]
        assert float(whole.exp().sum()) == pytest.approx(1, abs=1e-5)
        assert value == pytest.approx(float(whole[ids[place]]), abs=1e-5)


def test_without_an_unknown_word_others_are_an_error(runs):
    with pytest.raises(ValueError, match=r"'cot', which is not among .* nearest: .*'cat'"):
        runs["cbow"].score("the cot sees")


@pytest.mark.parametrize("name", CAUSAL)
def test_generated_text_can_be_had_again(name, runs):
    run = runs[name]
    texts = [run.generate(seed=seed) for seed in range(20)]
    assert texts == [run.generate(seed=seed) for seed in range(20)]
    assert len({" ".join(words) for words in texts}) > 10
    assert all("<eos>" not in words[:-1] and "<unk>" not in words for words in texts)
    assert sum(words[-1] == "<eos>" for words in texts) >= 15
    begun = run.generate("the cat", seed=1, num_words=4)
    assert begun[:2] == ["the", "cat"]
    assert 3 <= len(begun) <= 4
    assert run.generate("the cat <eos>") == ["the", "cat", "<eos>"]


def test_words_are_drawn_as_often_as_the_model_says(runs):
    run = runs["n-gram"]
    draws = 500
    drawn = [run.generate("the", num_words=2, seed=seed)[1] for seed in range(draws)]
    context = torch.cat([torch.full((14,), -1), run.vocabulary.encode(["the"])])[None]
    share = run.model.head.log_prob(context)[0].exp()
    share[run.vocabulary.encode(["<unk>"])] = 0
    share /= share.sum()
    for key, wanted in zip(run.vocabulary.keys, share.tolist(), strict=True):
        spread = math.sqrt(wanted * (1 - wanted) / draws)
        assert abs(drawn.count(key) / draws - wanted) <= 4.5 * spread + 1e-9, key


def test_what_cannot_be_generated_says_why(runs):
    with pytest.raises(
        ValueError, match=r"model cbow cannot continue a text: .*n-gram, nnlm, lstm"
    ):
        runs["cbow"].generate()
    with pytest.raises(ValueError, match=r"'cot' is not among the 11 keys of .*; nearest: .*'cat'"):
        runs["n-gram"].generate("the cot")
    with pytest.raises(ValueError, match="num_words must be"):
        runs["n-gram"].generate(num_words=0)


@pytest.mark.parametrize("name", CAUSAL)
def test_what_follows_best_can_be_asked(name, runs):
    best = runs[name].recommend(["the", "cat"], k=2)
    assert {found.key for found in best} == {"sees", "hears"}


def test_the_perplexity_of_an_ngram_run_is_that_of_the_ngrams(runs, text):
    run = runs["n-gram"]
    split = split_source(run.config, read_configured(text, run.config))
    train, held = split.sequences, split.test.sequences
    plain = wm.ngrams.NGramModel.modified_kneser_ney(train, len(run.vocabulary), order=3)
    assert len(held.values) == run.evaluate().examples
    assert math.exp(run.evaluate().loss) == pytest.approx(plain.perplexity(held), rel=1e-6)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("name", ["nnlm", "lstm"])
def test_the_perplexity_of_a_neural_run_is_that_of_its_model(name, across, runs, text, tmp_path):
    run = runs[name]
    if not across:
        config = config_of(name, across_lines=False, epochs=1)
        run = wm.train(text, config, folder=tmp_path / "run")
    held = split_source(run.config, read_configured(text, run.config)).test
    assert (len(held.sequences) == 1) == across
    if across and name == "lstm":
        # It has read all words before, over the ends of lines.
        held = wm.data.Windows(held.sequences, len(held.sequences.values), 0, held.positions)
    report = wm.evaluation.evaluate_perplexity(run.model.head, run.model.encode, held)
    assert report.tokens == run.evaluate().examples
    assert math.exp(run.evaluate().loss) == pytest.approx(report.perplexity, rel=1e-5)


def test_a_text_with_unknown_words_keeps_its_rare_ones(tmp_path):
    text = tmp_path / "text"
    text.write_text("\n".join(["the <unk> sees a gnu", *sentences(100)]) + "\n")
    kept = wm.train(text, config_of("nnlm", epochs=1), folder=tmp_path / "kept")
    assert "gnu" in kept.vocabulary
    assert kept.config.min_count == 1
    asked = config_of("nnlm", epochs=1, min_count=2)
    assert "gnu" not in wm.train(text, asked, folder=tmp_path / "asked").vocabulary


def stopped_at(step):
    def stop(progress):
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def weights(folder):
    return CheckpointStore(folder).load().model_tensors()


@pytest.mark.parametrize("name", ["skip-gram", "cbow", "nnlm", "lstm"])
def test_resuming_in_the_middle_of_an_epoch_is_bit_identical(name, runs, text, tmp_path):
    training = prepare(text, config_of(name), tmp_path / "parts")
    per_epoch = training.loop.steps.per_epoch
    assert per_epoch > 2
    training.loop.on_step = stopped_at(per_epoch + per_epoch // 2)
    with pytest.raises(wm.training.Interrupted):
        training.run()
    resumed = wm.train(text, None, folder=tmp_path / "parts", resume=True)
    one, other = weights(runs[name].folder), weights(tmp_path / "parts")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[each], other[each]) for each in one)
    wanted = [{**line, "seconds": 0} for line in runs[name].metrics]
    assert [{**line, "seconds": 0} for line in resumed.metrics] == wanted


def test_counting_is_done_again_if_it_was_not_finished(runs, text, tmp_path):
    # Nothing was saved yet: as if it had been killed while it counted.
    prepare(text, config_of("n-gram"), tmp_path / "run").loop.store.close()
    run = wm.train(text, None, folder=tmp_path / "run", resume=True)
    again = wm.train(text, None, folder=tmp_path / "run", resume=True)
    for each in (run, again):
        mine, wanted = each.model.state_dict(), runs["n-gram"].model.state_dict()
        assert all(torch.equal(mine[key], wanted[key]) for key in wanted)


def test_a_run_may_have_more_classes_than_ngrams(tmp_path):
    """There are no vectors of the classes: what a table would need says nothing."""
    path, folder = tmp_path / "text", tmp_path / "run"
    path.write_text("\n".join(f"w{number}" for number in range(3000)) + "\n")
    wm.train(path, config_of("n-gram", min_count=1), folder=folder)
    assert len(wm.load(folder).vocabulary) == 3002


@pytest.mark.parametrize("name", ["nnlm", "lstm"])
def test_a_layer_that_was_never_stored_is_not_allocated(name, runs, text, tmp_path):
    folder = tmp_path / "run"
    wm.train(text, config_of(name, epochs=1), folder=folder)
    settings = (folder / "config.toml").read_text()
    settings = settings.replace("hidden_size = 12", "hidden_size = 65536")
    settings = re.sub("max_history = .*", "max_history = 10000", settings)
    (folder / "config.toml").write_text(settings)
    # As somebody would who wants it to be taken for whole.
    description = json.loads((folder / "run.json").read_text())
    description["files"]["config.toml"] = file_sha256(folder / "config.toml")
    (folder / "run.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"numbers of .* or more"):
        wm.load(folder)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_log_is_no_text(name, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "ann,tea\nann,rum\nbob,tea\n" * 9)
    with pytest.raises(ValueError, match="end is for a text, and this is a log"):
        wm.train(log, config_of(name, end="<eos>"), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # What is usual with the model for text does not concern a log.
    run = wm.train(log, config_of(name), folder=tmp_path / "run")
    assert run.vocabulary.keys.to_list() == ["tea", "rum"]
    assert run.recommend(["rum"], k=1)[0].key == "tea"


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


def printed(*arguments):
    return json.loads(invoke(*arguments, "--json").stdout)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            ["--model", "nnlm", "--trainer", "kernel"],
            "trainer = 'kernel' trains skip-gram and CBOW",
        ),
        (
            ["--model", "cbow", "--trainer", "kernel", "--objective", "nce"],
            "objective must be negative-sampling, got 'nce'",
        ),
        (["--model", "cbow", "--trainer", "kernel", "--bias"], "needs bias = False, got True"),
        (
            ["--model", "n-gram", "--epochs", "3"],
            "trainer = 'fit', by which n-gram is fitted at once",
        ),
        (["--model", "n-gram", "--bias"], "--bias has no effect with model = 'n-gram'"),
        (["--model", "lstm", "--window", "3"], "--window has no effect with model = 'lstm'"),
        (["--model", "n-gran"], "did you mean 'n-gram'"),
    ],
)
def test_settings_that_do_not_fit_are_named(flags, named, text, tmp_path):
    result = CliRunner().invoke(app, ["train", str(text), "--folder", str(tmp_path / "x"), *flags])
    assert isinstance(result.exception, ValueError)
    assert named in str(result.exception)


def test_a_model_brings_its_settings_and_flags_win(text, tmp_path):
    folder = tmp_path / "run"
    flags = ["--model", "skip-gram", "--objective", "sampled-softmax", "--min-count", 1]
    said = invoke("train", text, "--folder", folder, *flags, "--epochs", 1, "--threads", 1)
    assert "trainer torch, because kernel needs objective = negative-sampling\n" in said.output
    config = wm.load(folder).config
    assert (config.trainer, config.objective) == ("torch", "sampled-softmax")
    assert (config.dimension, config.min_count, config.epochs) == (100, 1, 1)


def test_the_verbs_of_text(runs):
    words, language = runs["skip-gram"].folder, runs["n-gram"].folder
    assert printed("analogy", words, "cat", "dog", "rat", "-k", 2) == [
        {"key": found.key, "score": found.score}
        for found in runs["skip-gram"].analogy("cat", "dog", "rat", k=2)
    ]
    arguments = ["generate", language, "--start", "the cat", "--num-words", 9, "--seed", 5]
    wanted = runs["n-gram"].generate("the cat", num_words=9, seed=5)
    assert printed(*arguments) == wanted
    assert invoke(*arguments).stdout == " ".join(wanted) + "\n"
    figures = printed("evaluate", language)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert "perplexity" not in printed("evaluate", words)
    scored = printed("score", language, "the cat sees")
    mean = sum(row["log_prob"] for row in scored["words"]) / len(scored["words"])
    assert scored["perplexity"] == pytest.approx(math.exp(-mean))


def test_what_has_no_probability_is_null(text, tmp_path):
    folder = tmp_path / "run"
    wm.train(text, config_of("n-gram", smoothing="maximum-likelihood"), folder=folder)
    scored = printed("score", folder, "rat rat rat")
    assert scored["perplexity"] is None
    assert "inf" in invoke("score", folder, "rat rat rat").stdout


def test_word_vectors_are_tested_against_files(runs, tmp_path):
    pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
    pairs.write_text("cat\tdog\t9\ncat\tsees\t1\nrat\then\t8\ncat\tzebra\t5\n")
    questions.write_text(": animals\ncat dog rat hen\ncat dog rat zebra\n: verbs\ncat dog a the\n")
    folder, vectors = runs["skip-gram"].folder, runs["skip-gram"].vectors()
    rows = printed("evaluate", folder, "--similarity", pairs, "--analogies", questions)
    likeness = wm.evaluation.evaluate_similarity(vectors, pairs)
    assert rows[0] == {
        "test": "pairs.tsv", "spearman": likeness.spearman, "pearson": likeness.pearson,
        "pairs": 3, "skipped": 1,
    }  # fmt: skip
    report = wm.evaluation.evaluate_analogies(vectors, questions)
    assert [row["section"] for row in rows[1:]] == ["animals", "verbs", report.total.name]
    assert [(row["questions"], row["skipped"]) for row in rows[1:]] == [(1, 1), (1, 0), (2, 1)]
    assert rows[3]["accuracy"] == report.total.accuracy
    shown = invoke("evaluate", folder, "--similarity", pairs).stdout
    assert shown.split()[:2] == ["pairs.tsv", "spearman"]


@pytest.mark.parametrize(("model", "sampler"), [("lstm", "n-gram"), ("nnlm", "partition")])
def test_a_head_behind_a_layer_shows_its_sampler(model, sampler, text, tmp_path):
    config = config_of(model).changed(
        head="sampled", sampler=sampler, head_units=8, epochs=1, validation_size=20
    )
    run = wm.train(text, config, folder=tmp_path / "run")
    asked = run.recommend(["the"], k=3, include_seen=True)
    assert wm.load(tmp_path / "run").recommend(["the"], k=3, include_seen=True) == asked
