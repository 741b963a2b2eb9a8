"""Evaluation: exact metrics over the whole catalogue, of words and of language models."""

from widemax.evaluation.analogy import (
    AnalogyMethod,
    AnalogyReport,
    AnalogySection,
    evaluate_analogies,
)
from widemax.evaluation.prediction import (
    PerplexityReport,
    RankingReport,
    evaluate_perplexity,
    evaluate_ranking,
    mixed_perplexity,
    target_log_probs,
)
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.evaluation.recommendation_report import Mean, PopularityBucket, RecommendationReport
from widemax.evaluation.similarity import SimilarityReport, evaluate_similarity

__all__ = [
    "AnalogyMethod",
    "AnalogyReport",
    "AnalogySection",
    "Mean",
    "PerplexityReport",
    "PopularityBucket",
    "RankingReport",
    "RecommendationReport",
    "SimilarityReport",
    "evaluate_analogies",
    "evaluate_perplexity",
    "evaluate_ranking",
    "evaluate_recommendations",
    "evaluate_similarity",
    "mixed_perplexity",
    "target_log_probs",
]
