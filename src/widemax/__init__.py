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

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widemax.auditing import (
        AuditReport,
        audit,
    )
    from widemax.candidates import (
        Candidates,
        InnerProduct,
        TopK,
    )
    from widemax.contracts import (
        check_head,
        check_objective,
        check_sampler,
    )
    from widemax.data import (
        Sequences,
        SimulatedWorld,
        Source,
        WindowBatch,
        Windows,
        python_reference,
        read_source,
    )
    from widemax.encoders import (
        BagEncoder,
    )
    from widemax.evaluation import (
        RankingReport,
        evaluate_ranking,
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
    from widemax.models import (
        CBOW,
        BagModel,
        Model,
        NextItem,
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
    from widemax.optim import (
        RowAdagrad,
        RowAdam,
        RowSGD,
        RowwiseAdagrad,
        clip_grad_norm_,
    )
    from widemax.runs.api import (
        load,
        train,
    )
    from widemax.runs.config import (
        Config,
    )
    from widemax.runs.run import (
        Run,
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
        MappedTableScorer,
        Scorer,
        TableScorer,
        gather_rows,
    )
    from widemax.training import (
        Interrupted,
        NonFiniteError,
        check_finite,
    )
    from widemax.vectors import (
        KeyedVectors,
        read_numpy_vectors,
        read_projector_vectors,
        read_safetensors_vectors,
        read_word2vec_binary,
        read_word2vec_text,
        write_numpy_vectors,
        write_projector_vectors,
        write_safetensors_vectors,
        write_word2vec_binary,
        write_word2vec_text,
    )
    from widemax.vocabulary import (
        Vocabulary,
    )

__all__ = [
    "CBOW",
    "AdaptiveHead",
    "AllClassesSampler",
    "AuditReport",
    "BagEncoder",
    "BagModel",
    "BatchHardNegativeSampler",
    "Candidates",
    "CharCNNScorer",
    "Config",
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
    "InnerProduct",
    "Interrupted",
    "KeyedVectors",
    "LearnedUnigramSampler",
    "LogNormalizerStatistics",
    "LogUniformSampler",
    "MappedTableScorer",
    "MixtureSampler",
    "Model",
    "NGramSampler",
    "NextItem",
    "NonFiniteError",
    "Objective",
    "PartitionSampler",
    "QueueSampler",
    "RankingReport",
    "RowAdagrad",
    "RowAdam",
    "RowSGD",
    "RowwiseAdagrad",
    "Run",
    "SampledHead",
    "Sampler",
    "Scorer",
    "ScorerHead",
    "SelfNormalisedHead",
    "Sequences",
    "SimulatedWorld",
    "Source",
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
    "WindowBatch",
    "Windows",
    "as_full_head",
    "as_sampled_head",
    "as_table",
    "audit",
    "check_finite",
    "check_head",
    "check_objective",
    "check_sampler",
    "class_vectors_of",
    "clip_grad_norm_",
    "copy_class_vectors",
    "corrected_log_q",
    "effective_sample_size",
    "evaluate_ranking",
    "full_logistic",
    "full_softmax",
    "gather_rows",
    "gbce",
    "hits_by_class",
    "hits_by_query",
    "importance_sampling",
    "info_nce",
    "load",
    "log_normalizer_statistics",
    "nce",
    "negative_sampling",
    "python_reference",
    "read_numpy_vectors",
    "read_projector_vectors",
    "read_safetensors_vectors",
    "read_source",
    "read_word2vec_binary",
    "read_word2vec_text",
    "sampled_logistic",
    "sampled_softmax",
    "train",
    "write_numpy_vectors",
    "write_projector_vectors",
    "write_safetensors_vectors",
    "write_word2vec_binary",
    "write_word2vec_text",
]

# Where each public name lives. It is imported when first asked for: torch takes seconds to load,
# and ``widemax --help`` needs none of it. Type checkers read the imports above; a test holds the
# three lists together.
_NAMES = {
    "widemax.auditing": [
        "AuditReport",
        "audit",
    ],
    "widemax.candidates": [
        "Candidates",
        "InnerProduct",
        "TopK",
    ],
    "widemax.contracts": [
        "check_head",
        "check_objective",
        "check_sampler",
    ],
    "widemax.data": [
        "Sequences",
        "SimulatedWorld",
        "Source",
        "WindowBatch",
        "Windows",
        "python_reference",
        "read_source",
    ],
    "widemax.encoders": [
        "BagEncoder",
    ],
    "widemax.evaluation": [
        "RankingReport",
        "evaluate_ranking",
    ],
    "widemax.heads": [
        "AdaptiveHead",
        "CostModel",
        "Entmax15Head",
        "FullHead",
        "Head",
        "HierarchicalHead",
        "ImportanceDraw",
        "ImportanceHead",
        "InfrequentHead",
        "LogNormalizerStatistics",
        "SampledHead",
        "ScorerHead",
        "SelfNormalisedHead",
        "SparseHead",
        "SparsemaxHead",
        "TopKSoftmaxHead",
        "Tree",
        "TreeSummary",
        "as_full_head",
        "as_sampled_head",
        "as_table",
        "class_vectors_of",
        "copy_class_vectors",
        "hits_by_class",
        "hits_by_query",
        "log_normalizer_statistics",
    ],
    "widemax.models": [
        "CBOW",
        "BagModel",
        "Model",
        "NextItem",
    ],
    "widemax.objectives": [
        "Objective",
        "corrected_log_q",
        "effective_sample_size",
        "full_logistic",
        "full_softmax",
        "gbce",
        "importance_sampling",
        "info_nce",
        "nce",
        "negative_sampling",
        "sampled_logistic",
        "sampled_softmax",
    ],
    "widemax.optim": [
        "RowAdagrad",
        "RowAdam",
        "RowSGD",
        "RowwiseAdagrad",
        "clip_grad_norm_",
    ],
    "widemax.runs.api": [
        "load",
        "train",
    ],
    "widemax.runs.config": [
        "Config",
    ],
    "widemax.runs.run": [
        "Run",
    ],
    "widemax.sampling": [
        "AllClassesSampler",
        "BatchHardNegativeSampler",
        "DrawnSampler",
        "Frequency",
        "HardNegativeSampler",
        "InBatchSampler",
        "LearnedUnigramSampler",
        "LogUniformSampler",
        "MixtureSampler",
        "NGramSampler",
        "PartitionSampler",
        "QueueSampler",
        "Sampler",
        "StreamingFrequency",
        "UniformSampler",
        "UnigramSampler",
    ],
    "widemax.scoring": [
        "CharCNNScorer",
        "DifferentiatedScorer",
        "MappedTableScorer",
        "Scorer",
        "TableScorer",
        "gather_rows",
    ],
    "widemax.training": [
        "Interrupted",
        "NonFiniteError",
        "check_finite",
    ],
    "widemax.vectors": [
        "KeyedVectors",
        "read_numpy_vectors",
        "read_projector_vectors",
        "read_safetensors_vectors",
        "read_word2vec_binary",
        "read_word2vec_text",
        "write_numpy_vectors",
        "write_projector_vectors",
        "write_safetensors_vectors",
        "write_word2vec_binary",
        "write_word2vec_text",
    ],
    "widemax.vocabulary": [
        "Vocabulary",
    ],
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a checker would take it as leave to ask for any name

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Kept, so that this function is asked once a name.
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value
