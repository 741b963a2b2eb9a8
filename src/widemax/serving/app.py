"""The application: which paths there are, what they take, and who answers them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from widemax.declarations.options import shortened
from widemax.serving import schemas
from widemax.serving.http.answers import error_response, json_response
from widemax.serving.http.bodies import answer_each, parsed
from widemax.serving.http.guard import Guard, Hosts
from widemax.serving.http.metrics import CONTENT_TYPE, Metrics
from widemax.serving.http.openapi import BINARY, body, describe, ok
from widemax.serving.http.refusals import REFUSALS, say_http, say_mistake, say_parameters
from widemax.serving.limits import LONGEST_TEXT, MOST_ANSWERS, Limits
from widemax.serving.page_files import PageFiles
from widemax.serving.runs.fleet import Fleet
from widemax.serving.runs.served_run import POPULARITY, ServedRun
from widemax.serving.schemas import RecommendRequest, ScoreRequest, SimilarQuery, SimilarRequest
from widemax.serving.work import BusyError, Deadline, TooSlowError, Workers
from widemax.stores.postgres import DatabaseError, SlowDatabaseError
from widemax.vocabulary.spelling import UnknownNameError

WATCH_SECONDS = 2.0
"""How often folders are looked at for newer checkpoints."""

_LOGGER = logging.getLogger(__name__)
_MOST_ROWS = 1000
RunParameter = Annotated[
    str | None,
    Query(max_length=LONGEST_TEXT, description="Which of the served runs; by default the first."),
]
TextParameter = Annotated[str, Query(max_length=LONGEST_TEXT)]
CountParameter = Annotated[int, Query(ge=1, le=MOST_ANSWERS, description="How many are wanted.")]


class WrongRunError(Exception):
    """A run was named that is not served."""


class Application(FastAPI):
    """Routes over a fleet of runs; all work is done by a pool of threads."""

    def __init__(self, fleet: Fleet, limits: Limits, *, watch: float = WATCH_SECONDS) -> None:
        self.fleet, self.workers, self.metrics = fleet, Workers(limits), Metrics()
        self._watch = watch
        self._files = PageFiles()
        super().__init__(
            title="widemax serve",
            description="Recommendations, neighbours and scores of trained runs.",
            version="1",
            docs_url=None,
            redoc_url=None,
            lifespan=_lifespan,
            responses={
                status: {"model": schemas.Error, "description": text}
                for status, text in REFUSALS.items()
            },
        )
        self._asked: dict[str, Callable[[Request], Awaitable[Response]]] = {}
        self._add_routes()
        self.add_exception_handler(HTTPException, say_http)
        self.add_exception_handler(RequestValidationError, say_parameters)
        for served in fleet:
            self.metrics.serves(served.name, served.step)
        paths = {str(getattr(route, "path", "")) for route in self.routes}
        self.metrics.know(paths, lambda: self.workers.busy)

    # Work

    def run_named(self, name: str | None) -> ServedRun:
        """Return the run that a request names, or the first."""
        try:
            return self.fleet.get(name)
        except UnknownNameError as error:
            raise WrongRunError(error) from error

    async def answer(
        self,
        name: str | None,
        function: Callable[[ServedRun, Deadline], Any],
        kind: str | None = None,
    ) -> Response:
        """Return what a function makes of a run, in a thread; whatever goes wrong is an answer.

        What is of a ``kind`` costs about the same each time (``Workers.do``).
        """
        served = None
        try:
            served = self.run_named(name)
            known = None if kind is None else (served.name, served.step, kind)
            return await self.workers.do(partial(_rendered, function, served), known)
        except WrongRunError as error:
            cause = error.args[0]
            return error_response(404, str(cause), cause.suggestions)
        except BusyError:
            most = self.workers.limits.concurrent
            return error_response(429, f"{most:,} answers are under way, and no more may be")
        except TooSlowError:
            seconds = self.workers.limits.seconds
            return error_response(503, f"the answer took longer than {seconds:g} seconds")
        except SlowDatabaseError as error:
            _LOGGER.warning("a request failed: %s", error)
            return error_response(504, "the database took longer for a query than it may")
        except DatabaseError as error:
            # Where the database is, is no business of whoever asks.
            _LOGGER.warning("a request failed: %s", error)
            return error_response(503, "the database does not answer; the log says why")
        except ValueError as error:
            return say_mistake(error, served)
        except Exception:
            _LOGGER.exception("a request failed")
            return error_response(500, "the server failed to answer; its log says why")

    async def watch(self) -> None:
        """Take up newer checkpoints until the server stops; requests under way keep theirs."""

        def taken(served: ServedRun) -> None:
            self.metrics.reloaded(served.name, served.step)
            _LOGGER.warning("%s: step %s is served from now on", served.name, served.step)

        while True:
            await asyncio.sleep(self._watch)
            try:
                # Not by the threads that answer: loading a run may take longer than they may.
                await asyncio.to_thread(self.fleet.renew, taken)
            except Exception:
                _LOGGER.exception("a folder could not be looked at")

    # Routes

    def _add_routes(self) -> None:
        add = self.add_api_route
        add("/", self._page, include_in_schema=False)
        add("/static/{name:path}", self._file, include_in_schema=False)
        add("/health", self._health, responses=ok(schemas.Health), summary="Whether it answers")
        add("/metrics", self._metrics, include_in_schema=False)
        add("/run", self._runs, responses=ok(schemas.Runs), summary="The runs that are served")
        add("/items", self._items, responses=ok(schemas.ItemsFound), summary="Search for items")
        add("/items/rows", self._rows, responses=ok(schemas.Items), summary="Items by class id")
        add("/item", self._item, responses=ok(schemas.Item), summary="One item")
        add("/users", self._users, responses=ok(schemas.Users), summary="Search for users")
        add("/user", self._user, responses=ok(schemas.UserHistory), summary="What a user had")
        add("/similar", self._similar, responses=ok(schemas.SimilarItems), summary="Neighbours")
        add(
            "/map",
            self._map,
            responses=BINARY,
            response_class=Response,
            summary="Where items stand: float32 x, y of each class, header X-Num-Items",
        )
        add(
            "/map/colour",
            self._colour,
            responses=BINARY,
            response_class=Response,
            summary="A number of each class to colour it by, its names in header X-Names",
        )
        for path, endpoint, asked, answers, summary in (
            (
                "/recommend",
                self._recommend,
                RecommendRequest,
                schemas.Recommendations | schemas.RecommendationBatch,
                "What best follows a history",
            ),
            (
                "/similar",
                self._similar_many,
                SimilarRequest,
                schemas.SimilarItems | schemas.SimilarBatch,
                "Neighbours, of one item or several",
            ),
            (
                "/score",
                self._score,
                ScoreRequest,
                schemas.Scores | schemas.ScoreBatch,
                "How items are scored after a history",
            ),
        ):
            add(
                path,
                endpoint,
                methods=["POST"],
                responses=ok(answers),
                summary=summary,
                openapi_extra={"requestBody": body(asked)},
            )
            self._asked[path] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: a question at once, without the layers that have nothing to do for it.

        They look for parameters, dependencies and errors, of which a question has none.
        """
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._asked:
            response = await self._asked[scope["path"]](Request(scope, receive))
            await response(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        return await self._file(request, "index.html")

    async def _file(self, request: Request, name: str) -> Response:
        path = self._files.find(name)
        if path is None:
            return error_response(404, f"there is no file {shortened(repr(name))}")
        return self._files.response(path, request.headers.get("if-none-match"))

    async def _health(self) -> Response:
        return json_response({"status": "ok", "runs": self.fleet.names})

    async def _metrics(self) -> Response:
        return Response(self.metrics.page(), headers={"content-type": CONTENT_TYPE})

    async def _runs(self) -> Response:
        fleet = list(self.fleet)
        return await self.answer(None, lambda _, __: {"runs": [each.about() for each in fleet]})

    async def _items(
        self, q: TextParameter = "", k: CountParameter = 10, run: RunParameter = None
    ) -> Response:
        def found(served: ServedRun, _: Deadline) -> dict[str, object]:
            items = served.search_items(q, k)
            return {"items": items, "nearest": [] if items else served.nearest_items(q, k)}

        return await self.answer(run, found)

    async def _rows(
        self,
        request: Request,
        rows: Annotated[
            str,
            Query(
                max_length=20 * _MOST_ROWS,
                pattern=r"^[0-9]{1,10}(,[0-9]{1,10})*$",
                description=f"Class ids with commas between them, at most {_MOST_ROWS:,}.",
            ),
        ],
        run: RunParameter = None,
    ) -> Response:
        if len(request.query_params.getlist("rows")) > 1:
            return error_response(
                422, "rows can be given once: join class ids by commas, rows=3,17"
            )
        ids = [int(each) for each in rows.split(",")]
        if len(ids) > _MOST_ROWS:
            return error_response(422, f"rows may be {_MOST_ROWS:,}, and there are {len(ids):,}")
        return await self.answer(run, lambda served, _: {"items": served.items_at(ids)})

    async def _item(self, key: TextParameter, run: RunParameter = None) -> Response:
        return await self.answer(run, lambda served, _: served.item(served.row_of(key)))

    async def _users(
        self, q: TextParameter = "", k: CountParameter = 10, run: RunParameter = None
    ) -> Response:
        return await self.answer(run, lambda served, _: {"users": served.users(q, k)})

    async def _user(self, user: TextParameter, run: RunParameter = None) -> Response:
        return await self.answer(run, lambda served, _: served.history(user))

    async def _similar(
        self, key: TextParameter, k: CountParameter = 10, run: RunParameter = None
    ) -> Response:
        return await self.answer(run, lambda served, _: served.similar(key, k))

    async def _map(self, run: RunParameter = None) -> Response:
        def content(served: ServedRun, _: Deadline) -> Response:
            data = served.map()
            return _octets(data, {"x-num-items": str(len(data) // 8)})

        return await self.answer(run, content)

    async def _colour(
        self, feature: TextParameter = POPULARITY, run: RunParameter = None
    ) -> Response:
        def content(served: ServedRun, _: Deadline) -> Response:
            data, names = served.colours(feature)
            return _octets(data, {"x-names": quote(json.dumps(names, ensure_ascii=False))})

        return await self.answer(run, content)

    async def _recommend(self, request: Request) -> Response:
        asked = await parsed(request, RecommendRequest)
        if isinstance(asked, Response):
            return asked
        return await self.answer(
            asked.run,
            partial(answer_each, asked, lambda served, query: served.recommend(query)),
            "recommend" if self.fleet.in_memory and asked.is_small() else None,
        )

    async def _similar_many(self, request: Request) -> Response:
        asked = await parsed(request, SimilarRequest)
        if isinstance(asked, Response):
            return asked
        if asked.queries is None and asked.key is None:
            return error_response(422, "give a key, or queries")

        def ask(served: ServedRun, query: SimilarRequest | SimilarQuery) -> dict[str, Any]:
            return served.similar(str(query.key), query.k, query.filters, query.leave_out)

        return await self.answer(asked.run, partial(answer_each, asked, ask))

    async def _score(self, request: Request) -> Response:
        asked = await parsed(request, ScoreRequest)
        if isinstance(asked, Response):
            return asked
        if asked.queries is None and asked.items is None:
            return error_response(422, "give items, or queries")
        return await self.answer(
            asked.run,
            partial(answer_each, asked, lambda served, query: served.score(query.items, query)),
        )

    def openapi(self) -> dict[str, Any]:
        """Return the description of all paths, with the bodies that they take."""
        if self.openapi_schema is None:
            self.openapi_schema = describe(self, [RecommendRequest, SimilarRequest, ScoreRequest])
        return self.openapi_schema


def make_app(
    fleet: Fleet, hosts: Hosts, limits: Limits, *, watch: float = WATCH_SECONDS
) -> tuple[Application, Guard]:
    """Return the application, and the same behind what guards it."""
    application = Application(fleet, limits, watch=watch)
    return application, Guard(application, hosts, limits, application.metrics)


@asynccontextmanager
async def _lifespan(application: FastAPI) -> AsyncIterator[None]:
    assert isinstance(application, Application)
    watching = asyncio.create_task(application.watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        application.workers.close()
        application.fleet.close()


def _octets(data: bytes, headers: dict[str, str]) -> Response:
    return Response(data, headers=headers, media_type="application/octet-stream")


def _rendered(
    function: Callable[[ServedRun, Deadline], Any], served: ServedRun, deadline: Deadline
) -> Response:
    """Return an answer as it is sent: made here, in a thread, for it may be large."""
    found = function(served, deadline)
    return found if isinstance(found, Response) else json_response(found)
