"""The examples run as they stand, and learn."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import forked

EXAMPLES = Path(__file__).parents[2] / "examples"
# The 20 most popular items alone give 0.31; whoever knew the truth would reach 0.46.
LEAST_RECALL = 0.38


def run(name):
    """Return what an example prints, on one thread."""
    done = forked.run([EXAMPLES / name], env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def need(package):
    """Skip a test without a package; the example imports it, which takes seconds, not this."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def recall(printed):
    return float(re.search(r"^recall@20 (0\.\d+)$", printed, re.MULTILINE)[1])


def test_a_head_in_a_plain_loop():
    printed = run("plain_torch.py")
    assert printed.count("loss") == 3
    assert recall(printed) > LEAST_RECALL


def test_a_head_in_a_lightning_module():
    need("lightning")
    assert recall(run("lightning_module.py")) > LEAST_RECALL


def test_two_towers_in_a_plain_loop():
    printed = run("two_tower.py")
    popular = float(re.search(r"^popularity recall@20 (0\.\d+)$", printed, re.MULTILINE)[1])
    assert recall(printed) > 2.5 * popular > 0.1


def test_an_export_answers_as_its_run():
    printed = run("serving.py")
    same, lists, gap = re.search(r"^(\d+) of (\d+) lists .* within (\S+)$", printed, re.M).groups()
    assert int(same) >= int(lists) - 1 > 40
    assert float(gap) < 1e-4


def test_a_server_needs_no_torch():
    """It is also run by the example that exports; here it must come as far as its folder."""
    blocked = "import sys; sys.modules['torch'] = sys.modules['widemax'] = None; import server"
    done = subprocess.run([sys.executable, "-c", blocked], cwd=EXAMPLES, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_transformer_with_a_sampled_head():
    printed = run("language_model.py")
    last = float(re.search(r"^perplexity (\S+)$", printed, re.MULTILINE)[1])
    # The unigram distribution of this text has a perplexity of about 300.
    assert last < 60


def test_a_model_of_hugging_face_learns_through_a_head():
    need("transformers")
    before, after = re.search(r"loss (\S+) before, (\S+) after", run("hugging_face.py")).groups()
    assert float(after) < float(before) - 2


def test_vectors_of_items_know_their_categories():
    printed = run("item_vectors.py")
    assert float(printed.split()[0]) > 0.6  # by chance 0.12
    assert "200 vectors of 32 numbers" in printed


def test_heads_are_compared():
    rows = re.findall(
        r"^(\w.*?\w)\s+([\d.]+)\s+(-[\d.]+)\s+(0\.\d+)$", run("compare_heads.py"), re.M
    )
    assert [row[0] for row in rows] == ["full softmax", "sampled softmax", "NCE", "Huffman tree"]
    # The uniform distribution over 20,000 items has a log-likelihood of -9.9.
    assert all(-9.5 < float(row[2]) < -6 and float(row[3]) > 0.25 for row in rows)
    assert float(rows[1][1]) < float(rows[0][1]), "a sampled step is cheaper than a full one"


def test_every_example_is_run_here():
    tested, imported = Path(__file__).read_text(), "server.py"
    names = {path.name for path in EXAMPLES.glob("*.py")} - {imported}
    assert all(f'run("{name}")' in tested for name in names)
