"""The process that listens: its socket, slow heads of requests, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from widemax.serving.app import WATCH_SECONDS, make_app
from widemax.serving.http.answers import error_response
from widemax.serving.http.guard import HEADERS, Hosts
from widemax.serving.limits import Limits
from widemax.serving.runs.fleet import Fleet

_KEEP_ALIVE_SECONDS = 30
_SHUTDOWN_SECONDS = 10
_LONGEST_HEAD = 2**16
_SWITCH_SECONDS = 0.0005
"""How long a thread of Python may go on while another waits: answers are short."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and does not listen yet; a port that is taken is an error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, for only then does asyncio send small packets without waiting.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{host}, port {port} cannot be listened at: {reason}") from error
    return bound


def address_of(bound: socket.socket, host: str) -> str:
    """Return where a browser finds a server."""
    name = "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else host
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{name}:{bound.getsockname()[1]}/"


def make_server(
    fleet: Fleet,
    *,
    host: str,
    allowed_hosts: Sequence[str] = (),
    limits: Limits | None = None,
    watch: float = WATCH_SECONDS,
    ready: Callable[[], object] = lambda: None,
) -> Server:
    """Return a server for runs that are loaded; ``ready`` is called once it listens."""
    limits = limits or Limits()
    _, guarded = make_app(fleet, Hosts(host, allowed_hosts), limits, watch=watch)
    config = uvicorn.Config(
        guarded,
        http=_protocol(limits),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return Server(config, ready)


class Server(uvicorn.Server):
    """Says when it is ready, and ends by a signal without dying of it."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready
        self.interrupted = False
        """Whether Ctrl-C ended it."""

    def serve_on(self, bound: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM; what is under way then is answered first."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self.serve(sockets=[bound]))
        finally:
            sys.setswitchinterval(before)
            bound.close()
        if self.interrupted:
            raise KeyboardInterrupt

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have signals stop the server, and put back what they did before."""
        try:
            before = {
                each: signal.signal(each, self.handle_exit)
                for each in (signal.SIGINT, signal.SIGTERM)
            }
        except ValueError:  # not the main thread, as in tests: whoever started it stops it
            yield
            return
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; Ctrl-C a second time does not wait for what is under way."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop: uvloop's, which costs less, where there is one."""
    try:
        import uvloop
    except ImportError:  # Windows has none
        return None
    return uvloop.new_event_loop


def _protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """Return how requests are read: their heads within a time, and of bounded length.

    By the parser in C: the one in Python costs as much as a search of the index.
    """

    class Protocol(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _in_head = False
        _unparsed = 0
        """Bytes that came since something was made of what came before."""
        _data = b""
        """What the parser is given just now."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            self._unparsed += len(data)
            self._data = data
            super().data_received(data)
            self._data = b""
            if self._unparsed > _LONGEST_HEAD and not self.transport.is_closing():
                # One header, one line between chunks, or what follows the last of them.
                self._refuse(400, f"a head may have {_LONGEST_HEAD:,} bytes")
            elif self._in_head and self._deadline is None and not self.transport.is_closing():
                # The first bytes of a further request: the time for its head begins.
                self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        # Another protocol is not spoken: a wish for one is passed over, and the request answered

        def _should_upgrade(self) -> bool:
            return True

        def handle_websocket_upgrade(self) -> None:
            """Read a request again without its wish, and close the connection after the answer."""
            stopped = sys.exception()
            assert isinstance(stopped, HttpParserUpgrade)
            if self.scope["method"] == "CONNECT":
                self._refuse(400, "this server is no proxy")
                return
            rest = self._data[stopped.args[0] :]
            line = f"{self.scope['method']} {self.url.decode('latin-1')} "
            parts = [line.encode("latin-1"), b"HTTP/", self.scope["http_version"].encode()]
            for name, value in self.headers:
                if name not in (b"connection", b"upgrade"):
                    parts += [b"\r\n", name, b": ", value]
            self.parser = HttpRequestParser(self)
            # What follows a request that closes its connection is passed over.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.data_received(b"".join([*parts, b"\r\nconnection: close\r\n\r\n", rest]))

        # What the parser has found

        def on_message_begin(self) -> None:
            self._in_head = True
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            # What follows a body in the form of headers is none: it comes after they are judged.
            if self._in_head:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head, self._unparsed = False, 0
            self._stop_waiting()
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unparsed = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._unparsed = 0
            super().on_message_complete()

        def _wait_for_head(self) -> None:
            self._deadline = self.loop.call_later(limits.read_seconds, self._too_slow)

        def send_400_response(self, msg: str) -> None:
            """Refuse what the parser could not read."""
            self._refuse(400, "this is no HTTP request that can be read in one way alone")

        def _refuse(self, status: int, detail: str) -> None:
            """Answer what never became a request, in the form of all errors."""
            answer = error_response(status, detail, close=True)
            lines = [STATUS_LINE[status]]
            for name, value in (*answer.raw_headers, *HEADERS):
                lines += [name, b": ", value, b"\r\n"]
            self.transport.write(b"".join([*lines, b"\r\n", answer.body]))
            self.transport.close()

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            self._deadline = None
            if self.cycle is not None and not self.cycle.response_complete:
                # Nothing may be said in the middle of an answer.
                self._wait_for_head()
            elif not self.transport.is_closing():
                self._refuse(408, f"the head must be there within {limits.read_seconds:g} seconds")

    return Protocol
