"""The process that listens: its socket, slow heads of requests, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from widemax.serving.app import WATCH_SECONDS, make_app
from widemax.serving.fleet import Fleet
from widemax.serving.guard import Hosts
from widemax.serving.limits import Limits

_KEEP_ALIVE_SECONDS = 30
_SHUTDOWN_SECONDS = 10
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


def _protocol(limits: Limits) -> type[H11Protocol]:
    """Return how requests are read: their heads within a time, and of bounded length."""

    class Protocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._deadline is None and not self.transport.is_closing():
                # The first bytes of a further request: the time for its head begins.
                self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            self._deadline = self.loop.call_later(limits.read_seconds, self._too_slow)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            self._deadline = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n"
                    b"content-length: 0\r\n\r\n"
                )
                self.transport.close()

    return Protocol
