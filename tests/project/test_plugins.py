"""A method of each kind, declared outside the package in one file: trained, kept, asked again."""

import json
from pathlib import Path

import pytest

from tests import forked

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"

# One row a plug-in: the flags that use it, and what of the run shows that they did.
CASES = {
    "smoothed_sampler.py": ["--sampler=smoothed-unigram", "--smoothing-count=5"],
    "margin_objective.py": ["--objective=margin", "--margin=0.5"],
    "hashed_scorer.py": ["--scorer=hashed", "--buckets=7"],
    "smoothed_head.py": ["--head=smoothed-full", "--label-spread=0.2"],
    "decayed_model.py": ["--model=decayed", "--half-life=2"],
    "json_lines.py": [],
    "csv_export.py": [],
}


def widemax(plugin, *arguments, code=0):
    command = ["-m", "widemax", *(["--plugin", plugin] if plugin else [])]
    done = forked.run([*command, *arguments])
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_every_plugin_is_tested():
    assert {path.name for path in PLUGINS.glob("*.py")} == set(CASES)


@pytest.fixture
def log(tmp_path):
    rows = [(f"u{user}", f"i{(user + step) % 20}") for user in range(30) for step in range(6)]
    lines = [json.dumps({"user": user, "item": item}) for user, item in rows]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    table = "".join(f"{user},{item}\n" for user, item in rows)
    (tmp_path / "log.csv").write_text("user,item\n" + table)
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_a_method_of_ones_own(name, log):
    plugin, run = PLUGINS / name, log / "run"
    source = log / ("log.jsonl" if name == "json_lines.py" else "log.csv")
    small = ["--steps=3", "--dimension=8", "--batch-size=32"]
    widemax(plugin, "train", source, "--folder", run, *small, *CASES[name])
    config = (run / "config.toml").read_text()
    for flag in CASES[name]:
        setting, _, value = flag.removeprefix("--").replace("-", "_", 1).partition("=")
        assert f"{setting} = " in config
        assert value.replace("_", "-") in config
    found = json.loads(widemax(plugin, "recommend", run, "--user=u3", "--json"))
    assert len(found) == 10
    if name == "csv_export.py":
        widemax(plugin, "export", run, log / "vectors.csv", "--to=csv")
        assert (log / "vectors.csv").read_text().startswith("key,x0,x1,")
    if CASES[name]:
        # Nothing that a folder names is imported: whoever wants the method says where it is.
        said = widemax(None, "recommend", run, "--user=u3", code=2)
        assert "must be one of" in said
        assert len(said.strip().splitlines()) == 1
        shown = widemax(plugin, "train", "--help", *CASES[name][:1])
        assert CASES[name][1].partition("=")[0] in shown


CONTRACTS = {
    "sampler": "import smoothed_sampler, torch\n"
    "sampler = smoothed_sampler.SmoothedUnigramSampler(50, torch.arange(50), smoothing_count=1)\n"
    "assert wm.check_sampler(sampler, draws=20_000) > 1e-6",
    "objective": "import margin_objective; wm.check_objective(margin_objective.margin_loss)",
    "head and scorer": "import hashed_scorer, smoothed_head\n"
    "scorer = hashed_scorer.HashedScorer(30, 4, buckets=7)\n"
    "wm.check_head(smoothed_head.SmoothedFullHead(scorer, label_spread=0.1), dimension=4)",
}


@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_method_of_ones_own_keeps_the_contract(kind):
    """In a process of its own: what is declared stays declared."""
    program = f"import sys, widemax as wm; sys.path.insert(0, {str(PLUGINS)!r})\n{CONTRACTS[kind]}"
    done = forked.run(["-c", program])
    assert done.returncode == 0, done.stderr
