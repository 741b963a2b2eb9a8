"""Raw records: files, tables, logs and text, read and numbered.

A log goes through ``files`` → ``formats`` → ``tables`` → ``columns`` and ``logs`` → ``numbering`` →
``source``, a text through ``files`` → ``tokens`` → ``numbering`` → ``text`` → ``source``; each
knows only those before it.
"""

import lazy_loader

# The names are in ``__init__.pyi``: a text is read while torch is loaded.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
