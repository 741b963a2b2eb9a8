"""The names of the room: each is imported when it is first asked for."""

from .analogy import AnalogyMethod as AnalogyMethod
from .analogy import AnalogyReport as AnalogyReport
from .analogy import AnalogySection as AnalogySection
from .analogy import evaluate_analogies as evaluate_analogies
from .prediction import PerplexityReport as PerplexityReport
from .prediction import RankingReport as RankingReport
from .prediction import evaluate_perplexity as evaluate_perplexity
from .prediction import evaluate_ranking as evaluate_ranking
from .prediction import mixed_perplexity as mixed_perplexity
from .prediction import target_log_probs as target_log_probs
from .recommendation import evaluate_recommendations as evaluate_recommendations
from .recommendation_report import Mean as Mean
from .recommendation_report import PopularityBucket as PopularityBucket
from .recommendation_report import RecommendationReport as RecommendationReport
from .similarity import SimilarityReport as SimilarityReport
from .similarity import evaluate_similarity as evaluate_similarity
