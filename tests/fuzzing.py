"""How long tests that throw random bytes at a reader go on."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("WIDEMAX_FUZZ_EXAMPLES", "200"))

# A busy machine is no failure; a test may reuse its folder, because each example writes anew.
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
