"""The files of the page: those that lie in its folder, and nothing else."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

PAGE = Path(__file__).parent / "page"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


class PageFiles:
    """Files by their names, listed once: a name that a client makes up is looked up, not opened.

    >>> PageFiles(PAGE).find("../served_run.py") is None
    True
    """

    def __init__(self, folder: Path = PAGE) -> None:
        found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        self._files = {path.relative_to(folder).as_posix(): path for path in found}

    def find(self, name: str) -> Path | None:
        """Return the file of a name; None if there is none."""
        return self._files.get(name)

    def response(self, path: Path, seen: str | None) -> Response:
        """Return a file, or that it is still what the client has seen."""
        status = path.stat()
        tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if seen == tag:
            return Response(status_code=304, headers=headers)
        kind = _TYPES.get(path.suffix, "text/plain; charset=utf-8")
        return Response(path.read_bytes(), headers=headers, media_type=kind)
