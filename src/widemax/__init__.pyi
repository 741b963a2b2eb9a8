"""Every public name and where it lives: the only list of them. The package reads it, too."""

from .auditing import (
    AuditReport as AuditReport,
    audit as audit,
)
from .candidates import (
    Candidates as Candidates,
    InnerProduct as InnerProduct,
    TopK as TopK,
    merge_topk as merge_topk,
)
from .contracts import (
    check_head as check_head,
    check_objective as check_objective,
    check_sampler as check_sampler,
)
from .data import (
    Holdout as Holdout,
    Sequences as Sequences,
    SimulatedWorld as SimulatedWorld,
    Source as Source,
    WindowBatch as WindowBatch,
    Windows as Windows,
    encode_corpus as encode_corpus,
    encode_text as encode_text,
    join_phrases as join_phrases,
    python_reference as python_reference,
    read_corpus as read_corpus,
    read_source as read_source,
)
from .encoders import (
    BagEncoder as BagEncoder,
    LSTMEncoder as LSTMEncoder,
    NNLMEncoder as NNLMEncoder,
)
from .evaluation import (
    AnalogyReport as AnalogyReport,
    AnalogySection as AnalogySection,
    PerplexityReport as PerplexityReport,
    RankingReport as RankingReport,
    SimilarityReport as SimilarityReport,
    evaluate_analogies as evaluate_analogies,
    evaluate_perplexity as evaluate_perplexity,
    evaluate_ranking as evaluate_ranking,
    evaluate_similarity as evaluate_similarity,
    mixed_perplexity as mixed_perplexity,
    target_log_probs as target_log_probs,
)
from .heads import (
    AdaptiveHead as AdaptiveHead,
    CostModel as CostModel,
    Entmax15Head as Entmax15Head,
    FullHead as FullHead,
    Head as Head,
    HierarchicalHead as HierarchicalHead,
    ImportanceDraw as ImportanceDraw,
    ImportanceHead as ImportanceHead,
    InfrequentHead as InfrequentHead,
    LogNormalizerStatistics as LogNormalizerStatistics,
    SampledHead as SampledHead,
    ScorerHead as ScorerHead,
    SelfNormalisedHead as SelfNormalisedHead,
    SparseHead as SparseHead,
    SparsemaxHead as SparsemaxHead,
    TopKSoftmaxHead as TopKSoftmaxHead,
    Tree as Tree,
    TreeSummary as TreeSummary,
    as_full_head as as_full_head,
    as_sampled_head as as_sampled_head,
    as_table as as_table,
    class_vectors_of as class_vectors_of,
    copy_class_vectors as copy_class_vectors,
    hits_by_class as hits_by_class,
    hits_by_query as hits_by_query,
    log_normalizer_statistics as log_normalizer_statistics,
)
from .models import (
    CBOW as CBOW,
    NNLM as NNLM,
    BagModel as BagModel,
    LSTMLanguageModel as LSTMLanguageModel,
    Model as Model,
    NextItem as NextItem,
    NGram as NGram,
    NGramHead as NGramHead,
    SegmentBatch as SegmentBatch,
    Segments as Segments,
    SkipGram as SkipGram,
    WordModel as WordModel,
    keep_probability as keep_probability,
)
from .ngrams import (
    NGramModel as NGramModel,
)
from .objectives import (
    Objective as Objective,
    corrected_log_q as corrected_log_q,
    effective_sample_size as effective_sample_size,
    full_logistic as full_logistic,
    full_softmax as full_softmax,
    gbce as gbce,
    importance_sampling as importance_sampling,
    info_nce as info_nce,
    nce as nce,
    negative_sampling as negative_sampling,
    sampled_logistic as sampled_logistic,
    sampled_softmax as sampled_softmax,
)
from .optim import (
    RowAdagrad as RowAdagrad,
    RowAdam as RowAdam,
    RowSGD as RowSGD,
    RowwiseAdagrad as RowwiseAdagrad,
    clip_grad_norm_ as clip_grad_norm_,
)
from .runs.api import (
    load as load,
    train as train,
)
from .runs.config import (
    Config as Config,
)
from .runs.run import (
    Run as Run,
)
from .sampling import (
    AllClassesSampler as AllClassesSampler,
    BatchHardNegativeSampler as BatchHardNegativeSampler,
    DrawnSampler as DrawnSampler,
    Frequency as Frequency,
    HardNegativeSampler as HardNegativeSampler,
    InBatchSampler as InBatchSampler,
    KneserNeySampler as KneserNeySampler,
    LearnedUnigramSampler as LearnedUnigramSampler,
    LogUniformSampler as LogUniformSampler,
    MixtureSampler as MixtureSampler,
    NGramSampler as NGramSampler,
    PartitionSampler as PartitionSampler,
    QueueSampler as QueueSampler,
    Sampler as Sampler,
    StreamingFrequency as StreamingFrequency,
    UniformSampler as UniformSampler,
    UnigramSampler as UnigramSampler,
)
from .scoring import (
    CharCNNScorer as CharCNNScorer,
    DifferentiatedScorer as DifferentiatedScorer,
    MappedTableScorer as MappedTableScorer,
    Scorer as Scorer,
    TableScorer as TableScorer,
    gather_rows as gather_rows,
)
from .training import (
    Interrupted as Interrupted,
    NonFiniteError as NonFiniteError,
    Word2VecSteps as Word2VecSteps,
    check_finite as check_finite,
    train_word2vec as train_word2vec,
)
from .vectors import (
    KeyedVectors as KeyedVectors,
    read_numpy_vectors as read_numpy_vectors,
    read_projector_vectors as read_projector_vectors,
    read_safetensors_vectors as read_safetensors_vectors,
    read_word2vec_binary as read_word2vec_binary,
    read_word2vec_text as read_word2vec_text,
    write_numpy_vectors as write_numpy_vectors,
    write_projector_vectors as write_projector_vectors,
    write_safetensors_vectors as write_safetensors_vectors,
    write_word2vec_binary as write_word2vec_binary,
    write_word2vec_text as write_word2vec_text,
)
from .vocabulary import (
    Vocabulary as Vocabulary,
)
