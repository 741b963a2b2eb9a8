"""Raw records: files, tables, logs and text, read and numbered.

A log goes through ``files`` → ``formats`` → ``tables`` → ``columns`` and ``logs`` → ``numbering`` →
``source``, a text through ``files`` → ``tokens`` → ``numbering`` → ``text`` → ``source``; each
knows only those before it.
"""

from widemax.data.reading.files import read_all
from widemax.data.reading.formats.atomic import AtomicType
from widemax.data.reading.logs import Columns
from widemax.data.reading.numbering import core_of, recoded
from widemax.data.reading.source import encoded_again, read_source
from widemax.data.reading.tables import recognise
from widemax.data.reading.text import encode_corpus, encode_text, read_corpus
from widemax.data.reading.tokens import split_words

__all__ = [
    "AtomicType",
    "Columns",
    "core_of",
    "encode_corpus",
    "encode_text",
    "encoded_again",
    "read_all",
    "read_corpus",
    "read_source",
    "recoded",
    "recognise",
    "split_words",
]
