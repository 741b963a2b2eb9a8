"""The Python language reference, which every Python brings along, as a small real corpus."""

from __future__ import annotations

import importlib
import re

_TOKEN = re.compile(r"\w+|[^\w\s]")
_UNDERLINE = re.compile(r"[*=~^\-\".#]+")


def python_reference() -> str:
    """Return the language reference of this Python as text: a paragraph a line, words in between.

    Lower case; a word is a run of letters, digits and underscores, any other sign stands alone:
    some 62,000 words and 47,000 signs in 2,600 lines, a little different in each version of Python,
    as pydoc keeps them for ``help()``.

    >>> from widemax.data.reading.text import encode_text
    >>> sequences, vocabulary = encode_text(python_reference(), min_count=5, unknown="<unk>")
    >>> len(vocabulary) > 1000, "generator" in vocabulary
    (True, True)
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise ValueError("this Python came without pydoc_data, its own documentation") from error
    paragraphs = (part for name in sorted(topics) for part in topics[name].split("\n\n"))
    lines = (" ".join(_words(paragraph)) for paragraph in paragraphs)
    return "\n".join(line for line in lines if line) + "\n"


def _words(paragraph: str) -> list[str]:
    lines = [line for line in paragraph.split("\n") if not _UNDERLINE.fullmatch(line.strip())]
    return _TOKEN.findall("\n".join(lines).lower())
