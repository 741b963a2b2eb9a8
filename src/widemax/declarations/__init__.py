"""What each method is, said once beside its code: name, options, what it goes with.

A sampler, objective, scorer, head, model, trainer, file format or export declares itself with the
decorator of its kind. From these declarations follow the configuration and its checks, the flags
and their help, completion, the comments of TOML files, the reference page and the contract tests.
The rooms that hold the methods import torch; the table of declarations (``declared.json``, written
by ``python -m widemax.declarations``) does not, so that ``--help`` and a misspelt name are quick.
"""

from widemax.declarations.declaration import Declaration, Need
from widemax.declarations.decorators import declare
from widemax.declarations.options import Option, Value, nearest, shortened, shown
from widemax.declarations.setup import Setup
from widemax.declarations.table import declared, find, load_plugin, names

__all__ = [
    "Declaration",
    "Need",
    "Option",
    "Setup",
    "Value",
    "declare",
    "declared",
    "find",
    "load_plugin",
    "names",
    "nearest",
    "shortened",
    "shown",
]
