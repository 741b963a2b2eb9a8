"""Writes ``declared.json`` from what the code declares: ``python -m widemax.declarations``."""

from __future__ import annotations

import json
from importlib import import_module
from pkgutil import walk_packages

from widemax.declarations.table import FILE, own_declarations

ROOMS = ("sampling", "objectives", "scoring", "heads", "models", "training", "data", "vectors")
"""The rooms whose modules declare methods, beside ``runs``."""


def generated() -> str:
    """Return the content of ``declared.json`` as the code declares it now."""
    for room in (*ROOMS, "runs"):
        package = import_module(f"widemax.{room}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    rows = [json.dumps(each.to_json(), ensure_ascii=False) for each in own_declarations()]
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(generated(), encoding="utf-8")
    print(f"{FILE} is written")
