"""The address of a database, whose password never gets into what is stored, said or logged."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

SCHEMES = ("postgresql://", "postgres://")

_PARAMETERS = {
    "application_name", "channel_binding", "connect_timeout", "dbname", "gssencmode", "host",
    "hostaddr", "options", "passfile", "port", "service", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslrootcert", "target_session_attrs", "user",
}  # fmt: skip
"""What may follow the question mark beside a password: none of it is a secret."""

_FORM = "postgresql://user@host:port/name"


class PostgresAddress(str):
    """Where a PostgreSQL database is; as a text it has no password.

    A password that was given is used for connections of this process only. Elsewhere it comes from
    ``PGPASSWORD`` or ``~/.pgpass``.

    >>> address = PostgresAddress("postgresql://ann:s%3Acret@db.example:5433/shop?sslmode=require")
    >>> address
    'postgresql://ann@db.example:5433/shop?sslmode=require'
    >>> address.password
    's:cret'
    """

    __slots__ = ("password",)

    password: str
    """What was given; empty: none was."""

    def __new__(cls, text: str) -> PostgresAddress:
        """Take an address apart; one that cannot be is refused without being repeated."""
        if isinstance(text, PostgresAddress):
            return text
        scheme, _, rest = text.partition("://")
        if f"{scheme}://" not in SCHEMES:
            raise ValueError(f"the address of a database must be {_FORM}")
        rest, _, parameters = rest.partition("?")
        authority, _, name = rest.partition("/")
        login, _, hosts = authority.rpartition("@")
        user, _, password = login.partition(":")
        ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts.split(",")]
        # A password with one of these in it would be taken for a host, and be shown as one.
        odd = "@" in name or "#" in text or any(port and not port.isdigit() for port in ports)
        if odd or any(each.isspace() or not each.isprintable() for each in text):
            raise ValueError(
                f"the address of a database must be {_FORM}, with %40 for @, %2F for /, %3A for : "
                "and %23 for # in a password"
            )
        given = dict(parse_qsl(parameters, keep_blank_values=True))
        password = given.pop("password", "") or unquote(password)
        if unknown := sorted(given.keys() - _PARAMETERS):
            raise ValueError(f"the address of a database must not have the parameter {unknown[0]}")
        shown = f"{SCHEMES[0]}{user}{'@' if user else ''}{hosts}/{name}"
        if given:
            shown += f"?{urlencode(given, safe='/:,', quote_via=quote)}"
        address = super().__new__(cls, shown)
        address.password = password
        return address

    def with_password(self) -> str:
        """Return what a driver connects with: never to be shown."""
        if not self.password:
            return str(self)
        mark = "&" if "?" in self else "?"
        return f"{self}{mark}password={quote(self.password, safe='')}"

    def hidden_in(self, message: str) -> str:
        """Return a message with the password, if it is in it, replaced.

        >>> PostgresAddress("postgresql://ann:secret@/shop").hidden_in("no 'secret' for ann")
        "no '***' for ann"
        """
        for secret in {self.password, quote(self.password, safe="")} - {""}:
            message = message.replace(secret, "***")
        return message


Place: TypeAlias = Path | PostgresAddress
"""Where data are or go: files, or a database."""


def is_address(place: object) -> bool:
    """Return whether something is the address of a database and not a path.

    >>> is_address("postgresql:///shop"), is_address("shop.duckdb")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(SCHEMES)


def place_of(place: str | Path) -> Place:
    """Return a path, or the address of a database without its password.

    >>> place_of("postgres://ann:secret@/shop"), str(place_of("shop.duckdb"))
    ('postgresql://ann@/shop', 'shop.duckdb')
    """
    if isinstance(place, str) and is_address(place):
        return PostgresAddress(place)
    if any(str(place).startswith(scheme[:-1]) for scheme in SCHEMES):
        raise ValueError("the address of a database must be a text, and not a path")
    return Path(place)


def location_of(place: str | Path) -> str:
    """Return where something is as a run keeps it: an absolute path, or an address.

    >>> location_of("postgresql://ann:secret@db/shop")
    'postgresql://ann@db/shop'
    """
    found = place_of(place)
    return str(found) if isinstance(found, PostgresAddress) else str(found.absolute())
