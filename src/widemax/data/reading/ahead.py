"""A text read while the program starts: to load torch takes as long as to read a long text."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from widemax.data.reading.codes import CodedText, read_codes

_begun: dict[tuple[Path, str | None, str | None], Future[CodedText]] = {}


@contextmanager
def reading_ahead(path: Path, tokens: str | None, end: str | None) -> Iterator[None]:
    """Read a text from now on, for the ``codes_of`` within that asks for the same.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corpus.txt"
    >>> _ = path.write_text("rum and tea\\n")
    >>> with reading_ahead(path, None, None):
    ...     codes_of(path, None, None)[2].to_list()
    ['rum', 'and', 'tea']
    """
    asked = (path, tokens, end)
    # Held nowhere else: whoever takes the codes is to be the only one who has them.
    _begun[asked] = Future()
    # A daemon: a program that ends by an error does not wait for its text.
    Thread(target=_read, args=(_begun[asked], *asked), daemon=True).start()
    try:
        yield
    finally:
        _begun.pop(asked, None)


def codes_of(path: str | Path, tokens: str | None, end: str | None) -> CodedText:
    """Return the codes of all words, the length of each line, and the words."""
    begun = _begun.pop((Path(path), tokens, end), None)
    return begun.result() if begun else read_codes(path, tokens, end)


def _read(found: Future[CodedText], path: Path, tokens: str | None, end: str | None) -> None:
    try:
        found.set_result(read_codes(path, tokens, end))
    except BaseException as error:
        found.set_exception(error)
