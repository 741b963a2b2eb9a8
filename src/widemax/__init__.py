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
"""

from widemax.candidates import Candidates, TopK
from widemax.contracts import check_head, check_objective, check_sampler
from widemax.data.simulation import SimulatedWorld
from widemax.heads import (
    FullHead,
    Head,
    SampledHead,
    ScorerHead,
    hits_by_class,
    hits_by_query,
)
from widemax.objectives import (
    Objective,
    corrected_log_q,
    effective_sample_size,
    full_logistic,
    full_softmax,
    gbce,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_logistic,
    sampled_softmax,
)
from widemax.sampling import (
    AllClassesSampler,
    DrawnSampler,
    Frequency,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    PartitionSampler,
    QueueSampler,
    Sampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import Scorer, TableScorer
from widemax.training import NonFiniteError, check_finite
from widemax.vocabulary import Vocabulary

__all__ = [
    "AllClassesSampler",
    "Candidates",
    "DrawnSampler",
    "Frequency",
    "FullHead",
    "Head",
    "InBatchSampler",
    "LearnedUnigramSampler",
    "LogUniformSampler",
    "MixtureSampler",
    "NonFiniteError",
    "Objective",
    "PartitionSampler",
    "QueueSampler",
    "SampledHead",
    "Sampler",
    "Scorer",
    "ScorerHead",
    "SimulatedWorld",
    "StreamingFrequency",
    "TableScorer",
    "TopK",
    "UniformSampler",
    "UnigramSampler",
    "Vocabulary",
    "check_finite",
    "check_head",
    "check_objective",
    "check_sampler",
    "corrected_log_q",
    "effective_sample_size",
    "full_logistic",
    "full_softmax",
    "gbce",
    "hits_by_class",
    "hits_by_query",
    "importance_sampling",
    "info_nce",
    "nce",
    "negative_sampling",
    "sampled_logistic",
    "sampled_softmax",
]
