"""What stands before the application: who may ask, how much, how slowly, and how many at once."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from widemax.serving.http.answers import error_response
from widemax.serving.http.metrics import Metrics
from widemax.serving.limits import Limits

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""What every answer carries: a browser runs, loads and frames nothing of others."""

_LARGE = 2**16
"""Bytes of a part of an answer that a client may be slow to take."""

_LOCAL = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """By which names a server may be asked: others are those of a page that rebinds its name.

    On loopback those are its addresses and localhost, else every address, for an address cannot be
    rebound, and the name of the machine. ``allowed`` are further names.

    >>> hosts = Hosts("127.0.0.1", ["shop.test"])
    >>> [hosts.allows(each) for each in ("localhost:80", "[::1]", "shop.test", "evil.test", "")]
    [True, True, True, False, False]
    """

    def __init__(self, host: str, allowed: Sequence[str] = ()) -> None:
        self._names = {*_LOCAL, host.lower(), *(each.lower() for each in allowed)}
        self._addresses = not is_loopback(host)
        if self._addresses:
            self._names.add(socket.gethostname().lower())

    def allows(self, header: str) -> bool:
        """Return whether the value of a Host header names this server."""
        name = _name_of(f"//{header}")
        if name is None:
            return False
        return name in self._names or (self._addresses and _address(name) is not None)

    def allows_origin(self, origin: str, header: str) -> bool:
        """Return whether a page of this origin may ask: it must be one that this server sent."""
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == header.lower()


class Guard:
    """Refuses what no run should be asked, and reads bodies whole before a run is."""

    def __init__(
        self, application: Application, hosts: Hosts, limits: Limits, metrics: Metrics
    ) -> None:
        self._application, self._hosts = application, hosts
        self._limits, self._metrics = limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            if len(message.get("body", b"")) < _LARGE:
                await send(message)
            else:
                await self._send_patiently(send, message)

        try:
            await self._guarded(scope, receive, reply)
        finally:
            self._metrics.seen(scope, status, perf_counter() - started)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
        refusal: tuple[int, str] | None = None
        if [name for name, _ in scope["headers"]].count(b"host") > 1:
            refusal = 400, "Host must be given once"
        elif not self._hosts.allows(host):
            refusal = 403, f"Host must be a name of this server, got {host[:60]!r}"
        elif origin is not None and not self._hosts.allows_origin(origin.decode("latin-1"), host):
            shown = origin.decode("latin-1")[:60]
            refusal = 403, f"Origin must be that of this server, got {shown!r}"
        body = b""
        if refusal is None:
            refusal, body = await self._read(headers, receive)
        if refusal is not None:
            # What is left of the body is not read: the connection ends with the answer.
            await error_response(*refusal, close=True)(scope, receive, send)
            return
        await self._application(scope, _once(body, receive), send)

    async def _read(
        self, headers: dict[bytes, bytes], receive: Receive
    ) -> tuple[tuple[int, str] | None, bytes]:
        """Return why a body is refused, or all of it."""
        most = self._limits.body
        length = headers.get(b"content-length", b"0")
        chunked = b"transfer-encoding" in headers
        if chunked and headers[b"transfer-encoding"].strip().lower() != b"chunked":
            given = headers[b"transfer-encoding"].decode("latin-1")[:60]
            return (400, f"Transfer-Encoding must be chunked, got {given!r}"), b""
        too_large = f"the body may have {most:,} bytes"
        if not chunked and int(length) > most:
            return (413, f"{too_large}, and it has {int(length):,}"), b""
        if not chunked and length == b"0":
            return None, b""
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return (400, "the body ended too early"), b""
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        return (413, f"{too_large}, and it has more"), b""
                    more = message.get("more_body", False)
        except TimeoutError:
            seconds = self._limits.read_seconds
            return (408, f"the body must be there within {seconds:g} seconds"), b""
        return None, b"".join(parts)

    async def _send_patiently(self, send: Send, message: Message) -> None:
        """Send a large part; a client that does not take it is left alone after a while."""
        try:
            async with asyncio.timeout(6 * self._limits.read_seconds):
                await send(message)
        except TimeoutError:
            raise ConnectionAbortedError("the client does not read its answer") from None


def _once(body: bytes, receive: Receive) -> Receive:
    """Return what hands out a body that is read already, and then what the client does."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def is_loopback(host: str) -> bool:
    """Return whether an address, or localhost, is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


# Nearly all requests name the server alike.
@lru_cache(maxsize=16)
def _name_of(url: str) -> str | None:
    """Return the name of a host in small letters; None if there is none, or more than that."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    return parts.hostname if plain else None
