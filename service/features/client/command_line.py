"""The options of the commands that talk to a service over HTTP, and how they end.

Every command prints its result on stdout and all else on stderr, and says how it went by its exit status: 0 done,
1 failed, 2 wrong usage, 3 not found, 4 refused (a key, a limit), 5 unreachable, 130 interrupted.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from service.commands.arguments import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    LOOK,
    RUN,
    SHOWN,
    TALK,
    AsLines,
    Limit,
    Yes,
    amount,
    argument,
    command_line,
    flag,
    many,
    option,
)
from service.features.client import asking, printing, reading
from service.features.client.errors import ClientError
from service.features.client.options import AsJson, Id, completion, confirm, environment, talking
from service.features.client.profile import keep_last, last_of
from service.features.client.reading import LAST
from service.features.client.service import Json, RemoteService
from service.features.client.trees import app as trees

MAX_INPUT_BYTES = 8 * 1024 * 1024
"""The most that is read from stdin or a file: the service takes no more by default."""

app = command_line()

Model = Annotated[str | None, option("--model", "-m", "NAME", "The model. Default: the profile's, or the first one.")]
From = Annotated[str | None, option("--from", "ID", "Continue this response.")]
Instructions = Annotated[str | None, option("--instructions", "-s", "WORDS", "Instructions for the model.")]
Quiet = Annotated[bool, flag("--no-reasoning", "-R", "Hide the model's reasoning.")]
Temperature = Annotated[float | None, amount(0, 2, "The sampling temperature")]
Effort = Annotated[
    Literal["low", "medium", "high"] | None, option("--effort", "low|medium|high", "The reasoning effort.")
]


@app.command(rich_help_panel=TALK)
@talking
def ask(
    service: RemoteService,
    words: Annotated[list[str] | None, argument("WORDS", "The message. Piped input is added.")] = None,
    on: Annotated[bool, flag("--continue", "-c", "Continue the last response from here.")] = False,
    before: From = None,
    conversation: Annotated[str | None, option("--conv", "ID", "Continue this conversation.")] = None,
    instructions: Instructions = None,
    model: Model = None,
    effort: Effort = None,
    temperature: Temperature = None,
    images: Annotated[list[Path] | None, option("--image", "FILE", "A picture for the model. Repeatable.")] = None,
    schema: Annotated[Path | None, option("--schema", "FILE", "A JSON schema for the answer.")] = None,
    background: Annotated[bool, flag("--background", "Don't wait: print the id. `harmonium tail` follows it.")] = False,
    no_stream: Annotated[bool, flag("--no-stream", "Print the answer when it is complete.")] = False,
    no_reasoning: Quiet = False,
    usage: Annotated[bool, flag("--usage", "-u", "Also print tokens and time.")] = False,
    as_json: AsJson = False,
) -> int | None:
    """Ask for one response, and print its answer as it arrives. The id goes to stderr at the end.

    `harmonium ask "Why is the sky blue?"`, or `git diff | harmonium ask "Review this."`. Continue with `-c`, or
    continue any response with `--from`. Ctrl-C ends the answer; the output so far is stored.
    """
    if on + (before is not None) + (conversation is not None) > 1:
        raise ClientError("give only one of --continue, --from and --conv", EXIT_USAGE)
    body: Json = {"input": _input(words or []) if not images else _with_pictures(words or [], images)}
    if on or before is not None:
        body["previous_response_id"] = before if before is not None else last_of(service.url, environment())
    if conversation is not None:
        body["conversation"] = conversation
    body |= _request_fields(instructions, effort, temperature)
    if schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": _schema(schema)}}
    body["model"] = model or service.first_model()
    if background:
        response = asking.begin(service, body)
        keep_last(service.url, response["id"], environment())
        printing.out(json.dumps(response) if as_json else response["id"])
        return None
    live = not (no_stream or as_json)
    events = service.stream("POST", "/v1/responses", body | {"stream": True})
    answer = asking.print_answer(events, reasoning=live and not no_reasoning and sys.stderr.isatty(), words=live)
    if answer.id is None:
        return EXIT_INTERRUPTED
    keep_last(service.url, answer.id, environment())
    if as_json:
        printing.out(json.dumps(answer.response))
    elif no_stream:
        printing.out(printing.output_text(answer.response))
    printing.remark(printing.head_of(answer.response) if usage else answer.id)
    return EXIT_INTERRUPTED if answer.interrupted else asking.exit_status(answer.response)


@app.command(rich_help_panel=TALK)
@talking
def chat(
    service: RemoteService,
    before: From = None,
    instructions: Instructions = None,
    model: Model = None,
    effort: Effort = None,
    temperature: Temperature = None,
    no_reasoning: Quiet = False,
) -> None:
    """Chat with a model, line by line. `/help` explains how to go back, retry and fork; Ctrl-D ends it."""
    body = {"model": model or service.first_model()} | _request_fields(instructions, effort, temperature)
    asking.with_history()
    asking.OpenChat(service, body, not no_reasoning and sys.stderr.isatty(), before).run()


@app.command(rich_help_panel=LOOK)
@talking
def show(
    service: RemoteService,
    id: Id = LAST,
    items: Annotated[bool, flag("--items", "Print the items instead, a JSON object per line.")] = False,
    events: Annotated[
        bool, flag("--events", "Print the events instead, a JSON object per line, if they are stored.")
    ] = False,
    tokens: Annotated[
        bool, flag("--tokens", "Print the tokens instead; with --json as the service returns them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a response: its input, its output, its tokens and time."""
    if items + events + (tokens or as_json) > 1:
        raise ClientError("give only one of --items, --events, --tokens and --json", EXIT_USAGE)
    path = f"/v1/responses/{id}"
    if tokens:
        _show_tokens(service.pages(f"/console/api/turns/{id}/tokens"), as_json=as_json)
    elif as_json:
        printing.out(json.dumps(service.call("GET", path)))
    elif items:
        for item in reading.items(service, f"{path}/input_items"):
            printing.out(json.dumps(item))
        for item in service.call("GET", path)["output"]:
            printing.out(json.dumps(item))
    elif events:
        for event in service.stream("GET", path, stream="true"):
            printing.out(json.dumps(event))
    else:
        head, *paragraphs = reading.paragraphs_of(service, id)
        printing.bold(head)
        for paragraph in paragraphs:
            printing.out(f"\n{paragraph}")


def _show_tokens(pages: Iterator[Json], *, as_json: bool) -> None:
    """Print the pages of a response's tokens."""
    for number, page in enumerate(pages):
        if as_json:
            printing.out(json.dumps(page))
            continue
        for line in reading.token_lines(page):
            printing.out(line)
        if number == 0:
            printing.remark(reading.tokens_told(page))


app.add_typer(trees, name="")


@app.command(rich_help_panel=LOOK)
@talking
def log(
    service: RemoteService,
    id: Id = LAST,
    limit: Limit = SHOWN,
    as_json: AsLines = False,
) -> None:
    """Print a response and the turns before it, the newest first."""
    for response, told in reading.chain(service, id, limit):
        if as_json:
            printing.out(json.dumps(response))
            continue
        printing.bold(printing.head_of(response))
        printing.out(f"  < {printing.excerpt(told)}\n  > {printing.excerpt(printing.output_text(response))}")


@app.command(rich_help_panel=LOOK)
@talking
def diff(
    service: RemoteService,
    one: Id,
    other: Annotated[str, argument("ID", "The id of the other response.")],
    as_json: AsJson = False,
) -> int:
    """Compare two responses: count their common items, and print the others. The exit status is 1 if they differ."""
    same, ones, others = reading.differing(service, one, other)
    if as_json:
        printing.out(json.dumps({"in_common": same, one: ones, other: others}))
    else:
        printing.remark(f"{many(same, 'item')} in common")
        for sign, items in ("-", ones), ("+", others):
            for paragraph in printing.transcript(items):
                printing.out("\n".join(f"{sign} {line}" for line in paragraph.split("\n")))
    return 1 if ones or others else 0


@app.command(rich_help_panel=TALK)
@talking
def tail(
    service: RemoteService,
    id: Id,
    after: Annotated[int | None, amount(0, None, "Only the events after this number")] = None,
    no_reasoning: Quiet = False,
    as_json: Annotated[bool, flag("--json", "Print the events, a JSON object per line.")] = False,
) -> int:
    """Follow a background response to its end, across broken connections and restarts. Ctrl-C stops following, not the
    response.
    """
    events = service.follow(id, after)
    response: Json = {}
    if as_json:
        for event in events:
            response = event.get("response", response)
            printing.out(json.dumps(event))
        return EXIT_FAILED if asking.why_not(response) else 0
    answer = asking.print_answer(events, reasoning=not no_reasoning and sys.stderr.isatty())
    printing.remark(printing.head_of(answer.response))
    return EXIT_INTERRUPTED if answer.interrupted else asking.exit_status(answer.response)


@app.command(rich_help_panel=TALK)
@talking
def wait(
    service: RemoteService,
    id: Id,
    timeout: Annotated[float | None, amount(0, None, "The longest wait", metavar="SECONDS")] = None,
    as_json: AsJson = False,
) -> int:
    """Wait for the end of a response, and print its answer."""
    response = reading.waited_for(service, id, timeout)
    printing.out(json.dumps(response) if as_json else printing.output_text(response))
    return asking.exit_status(response)


@app.command(rich_help_panel=TALK)
@talking
def cancel(service: RemoteService, id: Id, as_json: AsJson = False) -> None:
    """Cancel a background response. Its output so far stays."""
    response = service.call("POST", f"/v1/responses/{id}/cancel")
    printing.out(json.dumps(response) if as_json else printing.head_of(response))


@app.command(rich_help_panel=TALK)
@talking
def jobs(
    service: RemoteService,
    limit: Limit = SHOWN,
    watch: Annotated[bool, flag("--watch", "-w", "Print changes of all jobs until Ctrl-C.")] = False,
    as_json: AsLines = False,
) -> None:
    """List running batches, then waiting and running background responses, the newest first. `harmonium tail ID`
    follows a response."""
    if watch and sys.stdout.isatty() and not as_json:
        reading.draw(service, reading.pause)
    found, more = (reading.changes(service, reading.pause), False) if watch else reading.jobs_of(service, limit)
    for job in found:
        printing.out(json.dumps(job) if as_json else reading.line_of(job))
    if more:
        printing.remark("… --limit shows more" if limit < reading.MOST_JOBS else "… and more")
    elif not found:
        printing.remark(reading.NOTHING_RUNS)


@app.command(rich_help_panel=LOOK)
@talking
def rm(
    service: RemoteService,
    id: Id,
    tree: Annotated[bool, flag("--tree", "Delete the whole conversation, with all forks.")] = False,
    erase: Annotated[bool, flag("--erase", "Also erase its content from later turns.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete a response. Its continuations stay and keep their history, unless you add --erase or --tree."""
    what = "the whole conversation of" if tree else "and erase" if erase else ""
    if not yes and not confirm(f"Delete {what} {id}?".replace("  ", " ")):
        raise ClientError("nothing was deleted")
    also = {"tree": "true" if tree else None, "erase": "true" if erase else None}
    deleted = service.call("DELETE", f"/v1/responses/{id}", None, **also)
    printing.out(json.dumps(deleted) if as_json else f"deleted {deleted['id']}")


app.command(rich_help_panel=RUN)(completion)


def _request_fields(instructions: str | None, effort: str | None, temperature: float | None) -> Json:
    """The fields of a request that both `ask` and `chat` may set."""
    reasoning = None if effort is None else {"effort": effort}
    fields = {"instructions": instructions, "reasoning": reasoning, "temperature": temperature}
    return {name: value for name, value in fields.items() if value is not None}


def _input(words: list[str], *, needed: bool = True) -> str:
    """The input: the words, and below them the text that is piped in. Raises ClientError, too where there is none and
    some is `needed`.
    """
    said = " ".join(words)
    piped = "" if sys.stdin.isatty() else _input_text(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1), "stdin")
    if needed and not (said.strip() or piped.strip()):
        raise ClientError("nothing to send: give words, or pipe them in", EXIT_USAGE)
    return f"{said}\n\n{piped}" if said and piped else said or piped


def _with_pictures(words: list[str], images: list[Path]) -> list[Json]:
    """The input: a message of the words, where there are any, and these pictures. Raises ClientError."""
    text = _input(words, needed=False)
    said = [{"type": "input_text", "text": text}] if text.strip() else []
    return [{"role": "user", "content": [*said, *map(_picture, images)]}]


def _picture(file: Path) -> Json:
    """A picture as a part of a message. The service knows its format by its bytes."""
    content = _content(file)
    if len(content) > MAX_INPUT_BYTES:
        raise ClientError(f"{file} has more than {MAX_INPUT_BYTES} bytes", EXIT_USAGE)
    return {"type": "input_image", "image_url": f"data:image/*;base64,{b64encode(content).decode()}"}


def _content(file: Path) -> bytes:
    """The content of a file, up to a byte more than is taken. Raises ClientError."""
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise ClientError(f"can't read {file}: {error.strerror}", EXIT_USAGE) from None


def _input_text(content: bytes, where: str) -> str:
    if len(content) > MAX_INPUT_BYTES:
        raise ClientError(f"{where} has more than {MAX_INPUT_BYTES} bytes", EXIT_USAGE)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ClientError(f"{where} is no UTF-8 text", EXIT_USAGE) from None


def _schema(file: Path) -> Any:
    try:
        return json.loads(_input_text(_content(file), str(file)))
    except ValueError as error:
        raise ClientError(f"{file} is no JSON: {error}", EXIT_USAGE) from None
