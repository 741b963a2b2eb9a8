"""Contract checks: hold a sampler, an objective or a head of your own to what users rely on."""

from widemax.contracts.head import check_head
from widemax.contracts.objective import check_objective
from widemax.contracts.sampler import check_sampler

__all__ = ["check_head", "check_objective", "check_sampler"]
