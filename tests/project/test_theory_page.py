"""The pages of theory: pictures and links are there, terms are found, claims of pictures are so."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import widemax as wm

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in (DOCS / "theory").glob("*.md") if path.stem != "README")
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in PAGES}
INDEX = (DOCS / "theory" / "README.md").read_text(encoding="utf-8")

# What tutorials of the field call things: every one of them is looked up in the list of terms.
TUTORIALS = """
    adaptive importance sampling; adaptive softmax; balanced; biased; binary tree; blocks;
    CBOW; candidate sampling; chain rule; character-level CNN; clustering; CNN-softmax;
    correction; cross-entropy; D-Softmax; differentiated softmax; effective sample size;
    EGES; energy; entropy; hierarchical softmax; Huffman; importance sampling; importance
    weights; in-batch; InfoNCE; information content; inner nodes; Item2Vec; language model;
    leaves; likelihood; log odds; log Q; logistic regression; many labels; Markov
    assumption; MIND; Monte Carlo integration; n-gram; NCE; NEG; negative reinforcement;
    negative sampling; noise distribution; noise-contrastive estimation; normaliser; one
    label; one-hot; path; perplexity; positive reinforcement; proposal; sampled softmax;
    sampling-based; SDM; sigmoid; skip-gram; softmax; softmax-based; sparse softmax;
    sparsemax; synsets; target sampling; temperature; two-tower; unigram distribution;
    word2vec; WordNet; YouTubeDNN; Airbnb; subtract_log_q; remove_accidental_hits; expected
    count
"""


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(DOCS / "draw_theory.py"))


@pytest.mark.parametrize("page", TEXTS)
def test_a_page_has_an_example_and_a_picture_of_modest_size(page, script):
    text = TEXTS[page]
    (name,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert name == f"{page}.svg"
    assert page in script["PICTURES"]
    assert (DOCS / "theory" / name).stat().st_size < 150_000
    assert ElementTree.parse(DOCS / "theory" / name).getroot().tag.endswith("svg")
    assert "`python docs/draw_theory.py`" in text
    assert ">>> " in text
    assert f"[{page}.md]({page}.md)" in INDEX


def test_pictures_are_drawn_again_by_the_script(script, tmp_path):
    for name in ("importance", "log-q", "clusters", "sparse"):
        script["draw"].__globals__.update(
            FOLDER=tmp_path, SIZES=[8, 16, 32, 64, 128], TRIALS=10, STEPS=4
        )
        assert ElementTree.parse(script["draw"](name)).getroot().tag.endswith("svg")


def test_every_term_is_on_its_page():
    rows = re.findall(r"^\| ([^|]+) \| (\[[^|]+) \|$", INDEX, re.MULTILINE)
    terms = {term: re.findall(r"\(([a-z-]+)\.md\)", pages) for term, pages in rows}
    assert len(terms) > 60
    for term, pages in terms.items():
        for page in pages:
            assert term.lower() in " ".join(TEXTS[page].split()).lower(), (term, page)
    wanted = [" ".join(each.split()) for each in TUTORIALS.split(";")]
    assert not [term for term in wanted if term not in terms]


@pytest.mark.parametrize("path", [*PAGES, DOCS / "theory" / "README.md", DOCS / "choosing.md"])
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (path.parent / link).exists(), link


def test_errors_fall_like_the_square_root_and_by_the_weights_of_the_proposal():
    """The squared error of S draws is (S / ESS − 1) / S, and so are the page's numbers."""
    script = runpy.run_path(str(DOCS / "draw_theory.py"))
    scores, samplers = script["world"]()
    spread = {}
    for name, sampler in samplers.items():
        spread[name] = 1 / script["effective_share"](scores, sampler) - 1
        expected = [(spread[name] / size) ** 0.5 for size in script["SIZES"]]
        assert script["relative_errors"](scores, sampler) == pytest.approx(expected, rel=0.15)
    assert 100 * spread["uniform"] / spread["by counts"] == pytest.approx(2000, rel=0.1)
    assert 100 * spread["close to P"] / spread["by counts"] == pytest.approx(3, abs=0.5)
    assert "about 2,000" in TEXTS["importance"]
    assert "three that know the context" in TEXTS["importance"]


def test_objectives_learn_what_the_pictures_show():
    """NCE comes to log P, negative sampling to log(P / kq): first classes, after fewer steps."""
    script = runpy.run_path(str(DOCS / "draw_theory.py"))
    script["learned"].__globals__.update(STEPS=400)
    first = slice(0, 8)
    truth, chance, scores = script["learned"](wm.nce, 0.5, 10, unique=False)
    assert torch.allclose(scores[first], truth.log()[first], atol=0.25)
    truth, chance, scores = script["learned"](wm.negative_sampling, 0.5, 10, unique=False)
    assert torch.allclose(scores[first], (truth / (10 * chance)).log()[first], atol=0.25)


@pytest.mark.parametrize("words", ["Monte Carlo integration", "Importance weights", "Markov"])
def test_what_readers_look_for_has_a_heading(words):
    assert any(re.search(rf"^## .*{words}", text, re.MULTILINE) for text in TEXTS.values())
