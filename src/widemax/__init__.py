"""widemax: softmax for wide outputs.

A sampled output layer is three independent choices: a scorer F(x, y), a sampler Q(y | x) and an
objective. A head holds the three and drops into any PyTorch model.

>>> import torch
>>> import widemax as wm
>>> head = wm.SampledHead(wm.TableScorer(10_000, 32), wm.LogUniformSampler(10_000),
...                       objective=wm.sampled_softmax, num_samples=256)
>>> loss = head(torch.randn(8, 32), torch.randint(10_000, (8,))).mean()
>>> loss.backward()
>>> head.topk(torch.randn(1, 32), k=3).ids.shape
torch.Size([1, 3])

The names here are those that most people need; everything else is in its room, such as
``widemax.sampling`` or ``widemax.data``.
"""

# First of all: Ctrl-C may come within any of the imports below.
from widemax.cli.interruption import guard_start

guard_start()

import lazy_loader  # noqa: E402

from widemax.declarations.public import PUBLIC, ROOMS  # noqa: E402

# Each is imported when it is first asked for: torch takes seconds to load, and ``widemax --help``
# needs none of it.
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ROOMS, PUBLIC)
