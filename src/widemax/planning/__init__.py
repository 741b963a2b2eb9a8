"""Planning a training of many processes: memory, bytes moved and time of a step, beforehand.

Nothing here loads torch but ``widemax.planning.measuring``.
"""

from widemax.planning.cluster import Cluster
from widemax.planning.costs import Costs
from widemax.planning.plan import Arrangement, ScalePlan, plan
from widemax.planning.traffic import Traffic
from widemax.planning.workload import Workload

__all__ = ["Arrangement", "Cluster", "Costs", "ScalePlan", "Traffic", "Workload", "plan"]
