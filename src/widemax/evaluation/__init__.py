"""Evaluation: exact metrics over the whole catalogue."""

from widemax.evaluation.ranking import RankingReport, evaluate_ranking

__all__ = ["RankingReport", "evaluate_ranking"]
