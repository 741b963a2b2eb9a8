"""The names of the package's root, and the rooms where all others are."""

ROOMS = (
    "auditing",
    "config",
    "contracts",
    "data",
    "declarations",
    "encoders",
    "evaluation",
    "heads",
    "index",
    "models",
    "ngrams",
    "objectives",
    "optim",
    "runs",
    "sampling",
    "scoring",
    "training",
    "vectors",
    "vocabulary",
)
"""The rooms that can be reached as attributes of the package."""

PUBLIC: dict[str, list[str]] = {
    "auditing": ["audit"],
    "candidates": ["Candidates", "TopK"],
    "config": ["Config"],
    "contracts": ["check_head", "check_objective", "check_sampler"],
    "data": ["Sequences", "leave_one_out", "read_source", "split_by_time"],
    "declarations": ["Option", "declare"],
    "evaluation": ["evaluate_recommendations"],
    "heads": ["AdaptiveHead", "FullHead", "Head", "HierarchicalHead", "SampledHead", "Tree"],
    "index": ["build_index"],
    "objectives": [
        "Objective",
        "corrected_log_q",
        "full_softmax",
        "info_nce",
        "nce",
        "negative_sampling",
        "sampled_softmax",
    ],
    "optim": ["RowAdam", "clip_grad_norm_", "optimizer_for"],
    "runs": ["Run", "load", "train"],
    "sampling": [
        "InBatchSampler",
        "LogUniformSampler",
        "MixtureSampler",
        "Sampler",
        "UniformSampler",
        "UnigramSampler",
    ],
    "scoring": ["Scorer", "TableScorer", "TowerScorer"],
    "vectors": ["KeyedVectors"],
    "vocabulary": ["Vocabulary"],
}
"""The names of the root, by the room they live in; ``__init__.pyi`` is generated from it."""
