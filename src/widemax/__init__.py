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

from widemax.auditing import (
    AuditReport,
    audit,
)
from widemax.candidates import (
    Candidates,
    TopK,
)
from widemax.contracts import (
    check_head,
    check_objective,
    check_sampler,
)
from widemax.data.simulation import (
    SimulatedWorld,
)
from widemax.heads import (
    AdaptiveHead,
    CostModel,
    Entmax15Head,
    FullHead,
    Head,
    HierarchicalHead,
    ImportanceDraw,
    ImportanceHead,
    InfrequentHead,
    LogNormalizerStatistics,
    SampledHead,
    ScorerHead,
    SelfNormalisedHead,
    SparseHead,
    SparsemaxHead,
    TopKSoftmaxHead,
    Tree,
    TreeSummary,
    as_full_head,
    as_sampled_head,
    as_table,
    class_vectors_of,
    copy_class_vectors,
    hits_by_class,
    hits_by_query,
    log_normalizer_statistics,
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
    BatchHardNegativeSampler,
    DrawnSampler,
    Frequency,
    HardNegativeSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    NGramSampler,
    PartitionSampler,
    QueueSampler,
    Sampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import (
    CharCNNScorer,
    DifferentiatedScorer,
    Scorer,
    TableScorer,
)
from widemax.training import (
    NonFiniteError,
    check_finite,
)
from widemax.vocabulary import (
    Vocabulary,
)

__all__ = [
    "AdaptiveHead",
    "AllClassesSampler",
    "AuditReport",
    "BatchHardNegativeSampler",
    "Candidates",
    "CharCNNScorer",
    "CostModel",
    "DifferentiatedScorer",
    "DrawnSampler",
    "Entmax15Head",
    "Frequency",
    "FullHead",
    "HardNegativeSampler",
    "Head",
    "HierarchicalHead",
    "ImportanceDraw",
    "ImportanceHead",
    "InBatchSampler",
    "InfrequentHead",
    "LearnedUnigramSampler",
    "LogNormalizerStatistics",
    "LogUniformSampler",
    "MixtureSampler",
    "NGramSampler",
    "NonFiniteError",
    "Objective",
    "PartitionSampler",
    "QueueSampler",
    "SampledHead",
    "Sampler",
    "Scorer",
    "ScorerHead",
    "SelfNormalisedHead",
    "SimulatedWorld",
    "SparseHead",
    "SparsemaxHead",
    "StreamingFrequency",
    "TableScorer",
    "TopK",
    "TopKSoftmaxHead",
    "Tree",
    "TreeSummary",
    "UniformSampler",
    "UnigramSampler",
    "Vocabulary",
    "as_full_head",
    "as_sampled_head",
    "as_table",
    "audit",
    "check_finite",
    "check_head",
    "check_objective",
    "check_sampler",
    "class_vectors_of",
    "copy_class_vectors",
    "corrected_log_q",
    "effective_sample_size",
    "full_logistic",
    "full_softmax",
    "gbce",
    "hits_by_class",
    "hits_by_query",
    "importance_sampling",
    "info_nce",
    "log_normalizer_statistics",
    "nce",
    "negative_sampling",
    "sampled_logistic",
    "sampled_softmax",
]
