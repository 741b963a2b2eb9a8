"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Requests by route and status, how long they took, what is under way, and steps of runs."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "widemax_requests_total",
            "Requests that were answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "widemax_request_seconds",
            "Seconds from the head of a request to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._busy = Gauge(
            "widemax_answers_under_way",
            "Answers that are computed or wait for a thread.",
            registry=self._registry,
        )
        self._steps = Gauge(
            "widemax_run_step",
            "The step of the checkpoint that answers.",
            ["run"],
            registry=self._registry,
        )
        self._reloads = Counter(
            "widemax_reloads_total",
            "Newer checkpoints that were taken up.",
            ["run"],
            registry=self._registry,
        )
        self._routes: set[str] = set()
        self._status: dict[tuple[str, int], Any] = {}
        self._times: dict[str, Any] = {}

    def know(self, routes: set[str], busy: Callable[[], float]) -> None:
        """Say which routes there are: all others are counted as one, for names cost memory."""
        self._routes = routes
        self._busy.set_function(busy)

    def seen(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        """Count a request."""
        path = str(scope["path"])
        route = path if path in self._routes else "other"
        key = (route, status)
        if key not in self._status:
            self._status[key] = self._requests.labels(route=route, status=str(status))
        if route not in self._times:
            self._times[route] = self._seconds.labels(route=route)
        self._status[key].inc()
        self._times[route].observe(seconds)

    def serves(self, run: str, step: int) -> None:
        """Say which step of a run answers."""
        self._steps.labels(run=run).set(step)
        self._reloads.labels(run=run)

    def reloaded(self, run: str, step: int) -> None:
        """Count a newer checkpoint."""
        self._reloads.labels(run=run).inc()
        self.serves(run, step)

    def page(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._registry)
