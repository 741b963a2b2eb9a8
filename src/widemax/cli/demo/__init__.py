"""``widemax demo``: the main job from end to end, on a shop that is simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widemax.cli.progress import starting


def demo(
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Compare six output layers with the known truth instead."),
    ] = False,
    num_classes: Annotated[
        int | None, typer.Option(help="Items in the simulated catalogue.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps of each model.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the world, the models and the draws.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the shop and its runs are kept; widemax-demo if not given."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures to this file.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve the run and its page until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="With --serve: the port to listen at.", show_default=False
        ),
    ] = None,
) -> None:
    """Simulate a shop, train on its log, evaluate it, and recommend."""
    if serve and compare:
        raise ValueError("--serve has no effect with --compare: nothing is kept")
    if port is not None and not serve:
        raise ValueError("--port is for --serve: give both")
    if compare and folder is not None:
        raise ValueError("--folder has no effect with --compare: nothing is kept")
    with starting():
        from widemax.cli.demo.job import run_demo
        from widemax.cli.demo.output_layers import compare_output_layers

    if compare:
        compare_output_layers(num_classes=num_classes, steps=steps, seed=seed, json_path=json)
        return
    run = run_demo(num_classes=num_classes, steps=steps, seed=seed, folder=folder, json_path=json)
    if serve:
        from widemax.cli.serve import PORT, serve_runs

        serve_runs([run], port=PORT if port is None else port)
