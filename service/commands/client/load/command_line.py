"""The options of `harmonium bench`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from service.commands.client import printing
from service.commands.client.errors import EXIT_FAILED, EXIT_INTERRUPTED
from service.commands.client.load.clients import MAX_CLIENTS, MAX_SECONDS, MAX_TURNS, METADATA, Load
from service.commands.client.load.figures import figures_of
from service.commands.client.options import AsJson, talking
from service.commands.client.service import Json, Service

app = typer.Typer()

LEAST_TOKENS = 16
"""The fewest output tokens that the API lets anyone ask for."""


@app.command()
@talking
def bench(
    service: Service,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", min=1, max=MAX_CLIENTS, metavar="N", help="Clients at once.")
    ] = 8,
    turns: Annotated[int, typer.Option(min=1, max=MAX_TURNS, metavar="N", help="Turns of each conversation.")] = 4,
    seconds: Annotated[
        int, typer.Option(min=1, max=MAX_SECONDS, metavar="N", help="After so long it ends in any case.")
    ] = 300,
    words: Annotated[str, typer.Option("--input", metavar="WORDS", help="What each turn says.")] = "Count to 20.",
    tokens: Annotated[
        int | None,
        typer.Option(
            "--max-output-tokens", min=LEAST_TOKENS, metavar="N", help="The most of an answer.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The model; else the first one.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", metavar="", help="Don't delete what was made.")] = False,
    as_json: AsJson = False,
) -> int:
    """Measure a service: many clients at once, each with one conversation, every answer streamed.

    What was made is deleted at the end. Ctrl-C ends it early, and tells what was measured by then.
    """
    body: Json = {"model": model or service.first_model(), "input": words}
    load = Load(service, body if tokens is None else body | {"max_output_tokens": tokens}, concurrency, turns, seconds)
    whole = load.run()
    found = figures_of(load.outcomes, load.seconds)
    if as_json:
        printing.out(json.dumps(asdict(found) | {"clients": concurrency, "turns": turns, "interrupted": not whole}))
    else:
        for line in found.lines():
            printing.out(line)
    load.leave()
    left = 0 if keep else load.delete()
    for root in load.roots if keep else ():
        printing.told(root)
    if left:
        names = " ".join(f"{name}={value}" for name, value in METADATA.items())
        printing.wrong(f"{left} trees are left; harmonium ls --metadata {names} lists them")
    if not whole:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if found.errors or not found.responses or left else 0
