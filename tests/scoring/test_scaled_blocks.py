"""A large table under the cosine is scaled by blocks, and answers as it does as a whole."""

import pytest
import torch

from widemax.heads import FullHead
from widemax.scoring import TableScorer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("entries", [1, 50, 95])
def test_blocks_give_what_the_whole_table_does(bias, entries, monkeypatch):
    torch.manual_seed(0)
    scorer = TableScorer(24, 4, bias=bias, similarity="cosine", temperature=0.1)
    if bias:
        torch.nn.init.normal_(scorer.bias)
    head, hidden = FullHead(scorer), torch.randn(5, 4)
    asked = (hidden, torch.arange(5)[:, None])
    with torch.no_grad():
        assert len(scorer.blocks(hidden)) == 1
        best, log_prob = head.topk(hidden, 7), head.log_prob(*asked)
        scores = head.scores(hidden)
        monkeypatch.setattr("widemax.scoring.table._SCALED_ENTRIES", entries)
        blocks = scorer.blocks(hidden)
        assert len(blocks) == -(-24 // max(1, entries // 4))
        assert torch.equal(torch.cat([each.vectors for each in blocks]), scorer.class_vectors())
        assert torch.equal(head.topk(hidden, 7).ids, best.ids)
        torch.testing.assert_close(head.topk(hidden, 7).scores, best.scores)
        torch.testing.assert_close(head.log_prob(*asked), log_prob)
        torch.testing.assert_close(head.scores(hidden), scores)
        assert torch.equal(blocks[-1].vectors, blocks[len(blocks) - 1].vectors)
        with pytest.raises(IndexError, match="blocks"):
            blocks[len(blocks)]
    # What is learned has one gradient: it needs the table as a whole.
    assert len(scorer.blocks(hidden)) == 1
