"""The page for readers from TensorFlow: every line of its table runs, and does what it says."""

import doctest
import re
from pathlib import Path

import pytest
import torch

from widemax.candidates import Candidates, TopK
from widemax.sampling import Sampler

PAGE = Path(__file__).parents[2] / "docs" / "tensorflow.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \| `(.+?)` \| (.*?)\|$", re.MULTILINE)
ROWS = [(name, code) for name, code, _ in ROW.findall(TEXT)]
LOOKED_FOR = {
    "nn.nce_loss",
    "nn.sampled_softmax_loss",
    "random.log_uniform_candidate_sampler",
    "random.uniform_candidate_sampler",
    "random.learned_unigram_candidate_sampler",
    "random.fixed_unigram_candidate_sampler",
    "random.all_candidate_sampler",
    "nn.compute_accidental_hits",
    "nn.embedding_lookup",
    "keras.preprocessing.sequence.skipgrams",
    "keras.preprocessing.sequence.make_sampling_table",
}


@pytest.fixture(scope="module")
def prepared():
    """The names that the page's first block defines."""
    block = TEXT.split("```python")[1].split("```")[0]
    names = {}
    for example in doctest.DocTestParser().get_examples(block):
        exec(example.source, names)
    return names


def test_every_function_that_readers_look_for_has_a_line():
    named = {name for row, _ in ROWS for name in re.findall(r"`tf\.([\w.]+)`", row)}
    assert named >= LOOKED_FOR
    table = [line for line in TEXT.splitlines() if line.startswith("| ") and "`" in line]
    assert len(ROWS) == len(table), "a line of the table has no code"


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[name for name, _ in ROWS])
def test_the_line_of_a_function_runs(row, prepared):
    name, code = ROWS[row]
    torch.manual_seed(0)
    found = eval(code, dict(prepared))
    if "SampledHead" in code or "FullHead(scorer)(" in code:
        assert found.shape == (8,)
        assert found.isfinite().all()
    elif isinstance(found, Candidates):
        size = 1000 if "AllClasses" in code else 64
        assert found.ids.shape == found.log_expected_count.shape == (size,)
        assert found.target_log_expected_count.shape == (8,)
        assert len(found.ids.unique()) == size, name
    elif isinstance(found, Sampler):
        drawn = found.log_prob(torch.arange(found.num_classes)).exp()
        assert drawn.sum().item() == pytest.approx(1)
        if "from_file" in code:
            assert found.num_classes == 1002
            assert drawn[:3].tolist() == pytest.approx([0, 0, 1000 / 500_500])
        else:
            assert (drawn.nonzero()[:, 0] % 4 == 1).all()
    elif isinstance(found, TopK):
        assert found.ids.shape == (8, 10)
    elif "hits_by_class" in code:
        ids, targets = prepared["candidates"].ids, prepared["targets"]
        assert torch.equal(found, ids == targets[:, None])
    elif "rows" in code:
        assert torch.equal(found, prepared["scorer"].weight[prepared["targets"]])
    elif "skipgrams" in code:
        pairs, labels = found
        assert len(pairs) == len(labels)
        if "sampling_table" not in code:
            assert (len(pairs), int(labels.sum())) == (52, 26)
    else:
        assert "zipf_sampling_table" in code
        assert found.shape == (1000,)
