"""The names of the room: each is imported when it is first asked for."""

from .files import read_all as read_all
from .formats.atomic import AtomicType as AtomicType
from .logs import Columns as Columns
from .numbering import core_of as core_of
from .numbering import recoded as recoded
from .source import encoded_again as encoded_again
from .source import read_source as read_source
from .tables import recognise as recognise
from .text import encode_corpus as encode_corpus
from .text import encode_text as encode_text
from .text import read_corpus as read_corpus
from .tokens import split_words as split_words
