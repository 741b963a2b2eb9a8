"""What the server says of itself is so: requests made from it, answers held against it.

By hand, at length, with what each path was asked: WIDEMAX_REQUESTS=5000 pytest -s
tests/serving/test_openapi.py
"""

import math
import os
import re
from collections import Counter

import pytest
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

from tests.serving.conftest import serving
from widemax.serving.limits import Limits

OPERATIONS = 13
REQUESTS = int(os.environ.get("WIDEMAX_REQUESTS", "150"))
# Here no client is slow on purpose: what a busy machine does to one must not look like a fault.
SECONDS = 120.0
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


@pytest.fixture(scope="module")
def served(shop):
    limits = Limits(read_seconds=SECONDS, seconds=SECONDS)
    with serving([shop / "towers", shop / "popularity"], limits=limits) as found:
        yield found


def test_no_request_breaks_the_server_or_its_schema(served):
    document = served.get("/openapi.json")
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.config.update(base_url=str(served.client.base_url), request_timeout=2 * SECONDS)
    seen = Counter()
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == OPERATIONS
    # Of what takes nothing there is one request: the others share the rest.
    open_ended = [each for each in operations if len(each.query) or len(each.body)]
    examples = max(5, math.ceil(REQUESTS / len(open_ended)))
    for operation in operations:

        @given(operation.as_strategy(), st.booleans())
        @settings(
            max_examples=examples,
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

        before = seen.total()
        check()
        print(f"{operation.label}: {seen.total() - before:,} requests", flush=True)
        assert seen.total() - before >= (examples if operation in open_ended else 1)
    print(f"{seen.total():,} requests: {dict(seen)}")


def test_examples_are_of_the_schema_and_errors_are_described(served):
    document = served.get("/openapi.json")
    assert not re.findall("HTTPValidationError", str(document))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            codes = set(operation["responses"])
            assert {"200", "403", "404", "422", "429", "503"} <= codes, path
    for name in ("RecommendRequest", "SimilarRequest", "ScoreRequest"):
        assert document["components"]["schemas"][name]["examples"]
