"""What the server says of itself is so: requests made from it, answers held against it.

By hand, at length: WIDEMAX_REQUESTS=5000 pytest tests/serving/test_openapi.py
"""

import os
import re
from collections import Counter

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

# By operation: 5,000 requests in all are some 385 of each.
OPERATIONS = 13
EXAMPLES = max(5, int(os.environ.get("WIDEMAX_REQUESTS", "150")) // OPERATIONS)
KNOWN = {"key": "i7", "user": "u4", "feature": "category"}
LISTS = {
    "history": ["i1", "Thing 9"],
    "items": ["i3", "i3"],
    "leave_out": ["i5"],
    "filters": {"category": ["tea"], "price": ["3..30", 7]},
    "features": {"age": 30, "likes": "tea"},
}
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


def name_what_there_is(case):
    """Put keys and users of the run where names are made up, which would all be unknown."""
    query = case.query if isinstance(case.query, dict) else {}
    query.pop("run", None)
    for field, value in KNOWN.items():
        if field in query:
            query[field] = value
    bodies = case.body if isinstance(case.body, dict) else {}
    bodies.pop("run", None)
    queries = bodies.get("queries")
    for body in [bodies, *(queries if isinstance(queries, list) else [])]:
        if not isinstance(body, dict):
            continue
        for field, value in {**KNOWN, **LISTS}.items():
            if body.get(field):
                body[field] = value
        if body.get("user"):
            body.pop("features", None)
        body.pop("search", None)


def test_no_request_breaks_the_server_or_its_schema(served):
    document = served.get("/openapi.json")
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.config.update(base_url=str(served.client.base_url))
    seen = Counter()
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == OPERATIONS
    for operation in operations:

        @given(operation.as_strategy(), st.booleans())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def check(case, named):
            if named:
                name_what_there_is(case)
            answer = case.call()
            seen[f"{case.operation.label} {answer.status_code}"] += 1
            case.validate_response(answer, checks=list(CHECKS))

        check()
    print(f"{seen.total():,} requests: {dict(seen)}")
    assert seen.total() >= EXAMPLES


def test_examples_are_of_the_schema_and_errors_are_described(served):
    document = served.get("/openapi.json")
    assert not re.findall("HTTPValidationError", str(document))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            codes = set(operation["responses"])
            assert {"200", "403", "404", "422", "429", "503"} <= codes, path
    for name in ("RecommendRequest", "SimilarRequest", "ScoreRequest"):
        assert document["components"]["schemas"][name]["examples"]
