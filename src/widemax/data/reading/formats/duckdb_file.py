"""DuckDB files, of which a query says what is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from widemax.data.reading.formats.base import FileHead, QueriedFormat
from widemax.declarations import declare
from widemax.extras import import_extra
from widemax.stores.addresses import Place

_MARK, _MARK_AT = b"DUCK", 8
_BATCH_ROWS = 2**17
# A query may neither write nor load code, whoever wrote the file of settings it stands in.
_LOCKED = {"enable_external_access": "false", "lock_configuration": "true"}


@declare.file_format("duckdb")
class DuckDBFormat(QueriedFormat):
    """A DuckDB file: DUCK stands in it from the ninth byte on."""

    rank = 5
    extra = "duckdb"

    @staticmethod
    def recognises(head: FileHead) -> bool:
        """Return whether the file has the mark of DuckDB."""
        return head.raw[_MARK_AT:].startswith(_MARK)

    @staticmethod
    @contextmanager
    def answer(place: Place, query: str) -> Iterator[Any]:
        """Yield the answer to a query, its rows in the order of the tables."""
        duckdb = import_extra("duckdb")
        try:
            with duckdb.connect(str(place), read_only=True, config=_LOCKED) as connection:
                _check_one_question(connection.extract_statements(query), duckdb)
                yield connection.sql(query).to_arrow_reader(_BATCH_ROWS)
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{place}: query cannot be answered: {reason}") from error


def _check_one_question(statements: list[Any], duckdb: Any) -> None:
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ValueError(f"query must be one SELECT, got {len(statements)} statements or another")
