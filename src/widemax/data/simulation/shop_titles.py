"""What the simulated shop sells: departments, kinds of things, and what they are made of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MATERIALS_A_DEPARTMENT = 8


class Department(NamedTuple):
    """Eight kinds of things, and the eight materials that they come in."""

    prices: dict[str, float]
    """What each kind usually costs."""
    materials: tuple[str, ...]


def _department(materials: str, kinds: str) -> Department:
    named = (kind.rsplit(maxsplit=1) for kind in kinds.split(","))
    return Department(
        {name.strip(): float(price) for name, price in named}, tuple(materials.split())
    )


_WOODS = "walnut oak cherry maple beech bamboo birch ash"
_METALS = "brass copper steel pewter zinc bronze enamel iron"
_CLOTHS = "linen wool cotton velvet hemp silk flannel felt"
_POTTERY = "ceramic stoneware porcelain glass slate marble olivewood copper"
_GEMS = "silver amber pearl jade coral opal garnet gold"
_SKINS = "leather canvas suede cork denim oilskin tweed nylon"

DEPARTMENTS = {
    name: _department(materials, kinds)
    for name, materials, kinds in (
        ("games", _WOODS, """chess set 60, draughts board 35, domino set 20, jigsaw puzzle 18,
            marble run 45, card box 15, dice tower 25, puzzle cube 12"""),
        ("kitchen", _POTTERY, """mixing bowl 22, teapot 38, bread box 42, rolling pin 16,
            pepper mill 28, soup ladle 12, serving tray 30, butter dish 19"""),
        ("garden", _METALS, """watering can 32, plant stand 40, bird bath 75, hand trowel 14,
            garden bench 180, seed tray 9, trellis 35, wind chime 24"""),
        ("office", _WOODS, """pen tray 18, letter opener 15, bookend 26, desk clock 55,
            pencil pot 12, file box 34, card holder 20, monitor stand 65"""),
        ("textiles", _CLOTHS, """cushion 25, throw 60, pillow case 16, quilt 140,
            bath towel 22, curtain 80, table runner 28, tea cosy 14"""),
        ("lighting", _METALS, """floor lamp 150, pendant lamp 95, lantern 38, candle holder 17,
            wall light 70, reading lamp 58, night light 20, snuffer 11"""),
        ("bags", _SKINS, """shoulder bag 90, wallet 40, rucksack 110, satchel 120,
            wash bag 28, key case 16, weekend bag 160, belt 35"""),
        ("music", _WOODS, """ukulele 85, flute 45, hand drum 70, music stand 50,
            thumb piano 38, rain stick 22, castanets 14, metronome 48"""),
        ("nursery", _CLOTHS, """soft bear 24, play mat 48, hand puppet 16, rag doll 28,
            bunting 15, sleeping bag 55, bib 8, story cushion 30"""),
        ("jewellery", _GEMS, """pendant 65, ring 90, bracelet 55, brooch 40,
            earrings 45, hair pin 18, cufflinks 50, anklet 35"""),
        ("bathroom", _POTTERY, """soap dish 12, tumbler 10, bath caddy 45, towel ring 26,
            shaving bowl 24, vanity mirror 68, oil flask 15, brush rest 9"""),
        ("outdoors", _SKINS, """camp stool 38, hammock 75, map case 24, picnic roll 44,
            tool apron 36, log carrier 42, saddle bag 70, flask sleeve 16"""),
    )
}  # fmt: skip

_STYLES = """
plain dark pale small large round square tall slim carved striped dotted painted polished rustic
folding nested curved fluted woven inlaid vintage modern ribbed speckled smoky coastal alpine nordic
harvest
"""
STYLES = tuple(_STYLES.split())

KINDS = tuple(
    (department, kind) for department, each in DEPARTMENTS.items() for kind in each.prices
)
"""Each kind of thing with its department, in a fixed order."""

MATERIALS = tuple(dict.fromkeys(name for each in DEPARTMENTS.values() for name in each.materials))

MOST_TITLES = len(KINDS) * MATERIALS_A_DEPARTMENT * len(STYLES)
"""How many things there are that differ in kind, material or style."""


class Things(NamedTuple):
    """Different things: of each, its kind, its material and its style, int64 [V]."""

    kinds: Tensor
    materials: Tensor
    styles: Tensor


def draw_things(number: int, generator: torch.Generator) -> Things:
    """Return different things, drawn from all there are."""
    drawn = torch.randperm(MOST_TITLES, generator=generator)[:number]
    kinds, rest = drawn // (MOST_TITLES // len(KINDS)), drawn % (MOST_TITLES // len(KINDS))
    own = torch.tensor(
        [
            [MATERIALS.index(name) for name in DEPARTMENTS[department].materials]
            for department, _ in KINDS
        ]
    )
    return Things(kinds, own[kinds, rest // len(STYLES)], rest % len(STYLES))


def titles_of(things: Things) -> list[str]:
    """Return the title of each thing in the catalogue.

    >>> titles_of(Things(*torch.tensor([[0], [0], [3]])))
    ['Small walnut chess set']
    """
    return [
        f"{STYLES[style].capitalize()} {MATERIALS[material]} {KINDS[kind][1]}"
        for kind, material, style in zip(*(part.tolist() for part in things), strict=True)
    ]
