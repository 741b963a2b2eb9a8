"""What the server says of itself is so: requests made from it, answers held against it.

By hand, at length: WIDEMAX_REQUESTS=5000 pytest tests/serving/test_openapi.py
"""

import os
import re

import schemathesis
from hypothesis import HealthCheck, given, settings
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
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


def test_no_request_breaks_the_server_or_its_schema(served):
    document = served.get("/openapi.json")
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.config.update(base_url=str(served.client.base_url))
    asked, seen = 0, {}
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == OPERATIONS
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def check(case, label=operation.label):
            nonlocal asked
            answer = case.call()
            asked += 1
            seen.setdefault(label, set()).add(answer.status_code)
            case.validate_response(answer, checks=list(CHECKS))

        given(operation.as_strategy())(check)()
    assert asked >= EXAMPLES
    print(f"{asked:,} requests", {label: sorted(codes) for label, codes in seen.items()})


def test_examples_are_of_the_schema_and_errors_are_described(served):
    document = served.get("/openapi.json")
    assert not re.findall("HTTPValidationError", str(document))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            codes = set(operation["responses"])
            assert {"200", "403", "404", "422", "429", "503"} <= codes, path
    for name in ("RecommendRequest", "SimilarRequest", "ScoreRequest"):
        assert document["components"]["schemas"][name]["examples"]
