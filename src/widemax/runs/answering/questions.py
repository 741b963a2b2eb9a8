"""What a run is asked: from what a model predicts, and which of its answers are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from widemax.filters import Filters
from widemax.vocabulary.spelling import Key

# Questions are put without torch, to a database as to a model.
if TYPE_CHECKING:
    from widemax.runs.answering.newcomers import FeatureValue


@dataclass(frozen=True, kw_only=True)
class Question:
    """From what a model is asked: what somebody had, and what is known of them."""

    history: Sequence[Key] | None = None
    """Keys, or titles of single items, oldest first; None: that of the user."""
    user: Key | None = None
    """A user of the log, whose features count."""
    search: str = ""
    """What they typed just now, for a run with a ``search_column``."""
    features: Mapping[str, FeatureValue] | None = None
    """Those of somebody new, for a run with ``user_features``."""

    def check(self) -> None:
        """Raise if nothing is said of anybody, or of somebody who is both known and new."""
        if self.user is not None:
            if self.features is not None:
                raise ValueError(
                    "features are those of somebody new: give them or a user, not both"
                )
        elif self.history is None and not self.search and self.features is None:
            raise ValueError("give a history or a user")


@dataclass(frozen=True, kw_only=True)
class RecommendQuestion(Question):
    """What is asked of ``Run.recommend``: from what, how many answers, and which."""

    filters: Filters | None = None
    """Values of features of which items must have one."""
    leave_out: Sequence[Key] = ()
    """Keys or titles that must not be among the answers."""
    k: int = 10
    """How many answers are wanted."""
    include_seen: bool = False
    """Whether what is in the history may be an answer."""
    exact: bool = False
    """Whether all items are compared, even if there is an index."""
