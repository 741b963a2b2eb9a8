"""The mean of a context, however many are asked at once."""

import pytest
import torch

from widemax.encoders import BagEncoder


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("context", [[], [7], [3, 5, 3], list(range(100))])
def test_one_context_alone_has_the_mean_that_it_has_among_others(dtype, context):
    encoder = BagEncoder(100, 16).to(dtype)
    contexts = torch.full((2, 101), -1)
    contexts[0, 1 : 1 + len(context)] = torch.tensor(context, dtype=torch.int64)
    among = encoder(contexts)
    with torch.no_grad():
        alone = encoder(contexts[:1])
    assert alone.dtype == among.dtype
    torch.testing.assert_close(alone, among[:1].detach(), rtol=1e-6, atol=1e-7)


def test_one_context_alone_is_learned_from():
    encoder = BagEncoder(5, 2)
    encoder(torch.tensor([[3, -1]])).sum().backward()
    assert encoder.weight.grad.coalesce().indices().tolist() == [[3]]


def test_one_context_alone_must_name_classes():
    with torch.no_grad(), pytest.raises(ValueError, match="context must lie between 0 and 4"):
        BagEncoder(5, 2)(torch.tensor([[5]]))
