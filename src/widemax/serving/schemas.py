"""What is asked and answered over HTTP, as OpenAPI shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from widemax.serving.limits import (
    LONGEST_TEXT,
    MOST_ANSWERS,
    MOST_HISTORY,
    MOST_LEFT_OUT,
    MOST_QUERIES,
    MOST_VALUES,
)

_SMALL = 100
"""Items that a question may name and ask for to be small."""

Text = Annotated[StrictStr, Field(max_length=LONGEST_TEXT)]
Count = Annotated[StrictInt, Field(ge=1, le=MOST_ANSWERS)]


def _as_text(value: Any) -> Any:
    """Return a whole number as the text that stands for it; booleans are no numbers."""
    return str(value) if type(value) is int else value


KeyText = Annotated[
    Text,
    BeforeValidator(_as_text, json_schema_input_type=StrictStr | StrictInt),
]
"""A key or a title; a whole number may be given as such."""

Keys = Annotated[list[KeyText], Field(max_length=MOST_HISTORY)]
Number = Annotated[FiniteFloat, Field(strict=True)]
Value = Text | Number


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HistoryQuery(_Asked):
    """From what a model is asked: a history, a user, or what is known of somebody new."""

    history: Annotated[
        Keys | None, Field(description="Keys or titles of what was chosen, oldest first.")
    ] = None
    user: Annotated[
        KeyText | None, Field(description="A user of the log; their history, unless one is given.")
    ] = None
    features: Annotated[
        dict[Text, Value | Annotated[list[Text], Field(max_length=MOST_VALUES)]] | None,
        Field(description="Features of somebody new, by name.", max_length=MOST_VALUES),
    ] = None
    search: Annotated[
        Text | None, Field(description="What was typed just now, for a run with a search_column.")
    ] = None


class _Chosen(_Asked):
    """Which items may be among the answers, and how many are wanted.

    What is empty unless given is made anew for each question: a default would be copied deeply.
    """

    leave_out: Annotated[
        list[KeyText],
        Field(max_length=MOST_LEFT_OUT, description="Keys that must not be among the answers."),
    ] = Field(default_factory=list, json_schema_extra={"default": []})
    filters: Annotated[
        dict[Text, Annotated[list[Value], Field(min_length=1, max_length=MOST_VALUES)]],
        Field(
            max_length=MOST_VALUES,
            description="Features that items must have: one of the values of each. Of a number "
            "also a range, as 2..5.",
        ),
    ] = Field(default_factory=dict, json_schema_extra={"default": {}})
    k: Annotated[Count, Field(description="How many items are wanted.")] = 10


class RecommendQuery(_Chosen, HistoryQuery):
    """One question for what best follows a history."""

    include_seen: Annotated[
        StrictBool, Field(description="Whether items of the history may be recommended again.")
    ] = False
    exact: Annotated[
        StrictBool, Field(description="Search exactly, even if there is an index.")
    ] = False


class _Batched(_Asked):
    queries: list[Any] | None = None
    run: Text | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> _Batched:
        given = self.model_fields_set - {"run", "queries"}
        if self.queries is not None and given:
            raise ValueError(f"queries stands alone, or with run; {min(given)} is given beside it")
        return self


RunName = Annotated[
    Text | None, Field(description="Which of the served runs; the first if not given.")
]


class RecommendRequest(RecommendQuery, _Batched):
    """A question, or several as ``queries``, which are answered in their order."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"history": ["round-oak-letter-opener"], "k": 3},
                {"user": "u0017", "filters": {"category": ["garden"], "price": ["..20"]}},
                {"queries": [{"user": "u0017"}, {"user": "u0018", "k": 5}]},
            ]
        },
    )
    queries: Annotated[
        list[RecommendQuery] | None, Field(min_length=1, max_length=MOST_QUERIES)
    ] = None
    run: RunName = None

    def is_small(self) -> bool:
        """Whether it is one plain question: others like it cost about the same."""
        plain = self.queries is None and self.user is None and not (self.filters or self.exact)
        length = len(self.history or ()) + len(self.leave_out)
        return plain and length <= _SMALL and self.k <= _SMALL


class SimilarQuery(_Chosen):
    """One question for what is most like an item."""

    key: Annotated[KeyText, Field(description="The key or the title of an item.")]


class SimilarRequest(_Chosen, _Batched):
    """A question, or several as ``queries``."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"key": "round-oak-letter-opener", "filters": {"category": ["garden"]}, "k": 3},
                {"queries": [{"key": "round-oak-letter-opener"}]},
            ]
        },
    )
    key: Annotated[KeyText | None, Field(description="The key or the title of an item.")] = None
    queries: Annotated[list[SimilarQuery] | None, Field(min_length=1, max_length=MOST_QUERIES)] = (
        None
    )
    run: RunName = None


class ScoreQuery(HistoryQuery):
    """One question for the scores of given items."""

    items: Annotated[
        list[KeyText],
        Field(min_length=1, max_length=MOST_HISTORY, description="Keys or titles to score."),
    ]


class ScoreRequest(HistoryQuery, _Batched):
    """Items to score, or several questions as ``queries``."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"user": "u0017", "items": ["round-oak-letter-opener"]},
                {"queries": [{"user": "u0017", "items": ["round-oak-letter-opener"]}]},
            ]
        },
    )
    items: Annotated[
        list[KeyText] | None,
        Field(min_length=1, max_length=MOST_HISTORY, description="Keys or titles to score."),
    ] = None
    queries: Annotated[list[ScoreQuery] | None, Field(min_length=1, max_length=MOST_QUERIES)] = None
    run: RunName = None


class Item(BaseModel):
    """An item, as it is known to the run."""

    key: str
    title: str | None
    count: int = Field(description="How often it was chosen in the log.")
    rank: int = Field(description="Its place by that: 1 is the most frequent.")
    row: int = Field(description="Its class id, and its place in the map.")
    features: dict[str, str | float | list[str]]


class ScoredNeighbour(Item):
    """An item and its score: the cosine for similar, the model's own for recommend."""

    score: float


class Reason(BaseModel):
    """The nearest item of the history, by the cosine of their vectors."""

    key: str
    title: str | None
    similarity: float


class Recommended(ScoredNeighbour):
    """An item that is recommended."""

    reason: Reason | None


class Recommendations(BaseModel):
    """What best follows a history, best first."""

    run: str
    step: int = Field(description="Which checkpoint answered.")
    items: list[Recommended]


class RecommendationBatch(BaseModel):
    """The answers to several questions, in their order."""

    answers: list[Recommendations]


class SimilarItems(BaseModel):
    """What is most like an item, best first."""

    run: str
    step: int
    key: str
    items: list[ScoredNeighbour]


class SimilarBatch(BaseModel):
    """The answers to several questions, in their order."""

    answers: list[SimilarItems]


class ItemScore(BaseModel):
    """How the model scores an item after a history."""

    key: str
    title: str | None
    score: float | None
    log_probability: float | None


class Scores(BaseModel):
    """The scores of given items, in their order."""

    run: str
    step: int
    scores: list[ItemScore]


class ScoreBatch(BaseModel):
    """The answers to several questions, in their order."""

    answers: list[Scores]


class Items(BaseModel):
    """Some items."""

    items: list[Item]


class ItemsFound(Items):
    """Items that have a text; where none has it, those whose titles or keys are spelt like it."""

    nearest: list[Item]


class UserFound(BaseModel):
    """A user of the log, and how many items they had."""

    user: str
    length: int


class Users(BaseModel):
    """Some users."""

    users: list[UserFound]


class UserHistory(BaseModel):
    """What a user of the log had, oldest first, at most the last hundred."""

    user: str
    history: list[Item]


class FeatureInfo(BaseModel):
    """A feature of items or users."""

    name: str
    kind: str
    values: list[str] = Field(description="At most the hundred most frequent.")


class RunInfo(BaseModel):
    """A run that is served."""

    name: str
    model: str
    kind: str
    step: int
    num_items: int
    num_users: int
    dimension: int | None
    has_titles: bool
    features: list[FeatureInfo]
    user_features: list[FeatureInfo]
    supports: list[str]
    metric: str
    validations: list[dict[str, Any]]
    evaluation: dict[str, Any] | None
    audit: dict[str, Any] | None
    command: str
    trained: str


class Runs(BaseModel):
    """The runs that are served, the first of which answers if none is named."""

    runs: list[RunInfo]


class Health(BaseModel):
    """Whether the server answers, and for which runs."""

    status: str
    runs: list[str]


class Error(BaseModel):
    """Why a request was not answered."""

    detail: str = Field(description="One sentence that names the field, the value and the limit.")
    suggestions: list[str] | None = Field(None, description="What may have been meant.")
