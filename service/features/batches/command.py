"""`harmonium batch`: have a file of requests answered, wait for it, and fetch the files of its answers."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.commands.arguments import EXIT_FAILED, EXIT_USAGE, TALK, argument, command_line, option
from service.features.client import printing
from service.features.client.errors import ClientError
from service.features.client.options import AsJson, talking
from service.features.client.printing import Json
from service.features.client.reading import pause
from service.features.client.service import RemoteService

ENDED = ("completed", "failed", "expired", "cancelled")

app = command_line()


@app.command(rich_help_panel=TALK)
@talking
def batch(
    service: RemoteService,
    file: Annotated[
        str, argument("FILE", "A file with a request per line; or the id of a batch, to wait for it again.")
    ],
    window: Annotated[
        Literal["2h", "8h", "24h"], typer.Option(metavar="2h|8h|24h", help="The time limit of the batch.")
    ] = "24h",
    output: Annotated[
        Path | None, option("--output", "-o", "FILE", "The file for the answers. Default: FILE.output.jsonl.")
    ] = None,
    as_json: AsJson = False,
) -> int | None:
    """Answer all requests of a file, wait for the end, and fetch the answers.

    `harmonium batch requests.jsonl`. Each line has `custom_id`, `method`, `url` and `body`, as in OpenAI's batches.
    Ctrl-C ends the wait, not the batch: `harmonium batch ID` waits again.
    """
    path = Path(file)
    if path.is_file() or not file.startswith("batch_"):
        wanted = {"endpoint": _endpoint_of(path), "completion_window": window}
        wanted["input_file_id"] = service.upload("/v1/files", path, purpose="batch")["id"]
        file = str(service.call("POST", "/v1/batches", wanted)["id"])
        printing.remark(f"batch {file}")
        output = output or path.with_suffix(".output.jsonl")
    ended = _wait(service, file)
    answers = output or Path(f"{file}.output.jsonl")
    errors = answers.with_name(answers.name.removesuffix(".jsonl").removesuffix(".output") + ".errors.jsonl")
    for what, id, where in (("answers", ended["output_file_id"], answers), ("errors", ended["error_file_id"], errors)):
        if id:
            service.download(f"/v1/files/{id}/content", where)
            printing.remark(f"{what} in {where}")
    counts = ended["request_counts"]
    told = f"{ended['status']}: {counts['completed']} of {counts['total']} answered, {counts['failed']} failed"
    printing.out(json.dumps(ended) if as_json else told)
    problems: list[Json] = ended["errors"]["data"] if ended["errors"] else []
    for problem in problems:
        line = "" if problem["line"] is None else f"line {problem['line']}: "
        printing.wrong(f"{line}{problem['message']}")
    return None if ended["status"] == "completed" and not counts["failed"] else EXIT_FAILED


def _endpoint_of(path: Path) -> str:
    """The endpoint of the first line that isn't blank. Raises ClientError."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            return str(json.loads(next(filter(str.strip, iter(lambda: lines.readline(1 << 26), "")), ""))["url"])
    except OSError as error:
        raise ClientError(f"can't read {path}: {error.strerror}", EXIT_USAGE) from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ClientError(f"the first line of {path} is no request with a url", EXIT_USAGE) from error


def _wait(service: RemoteService, id: str) -> Json:
    """The batch once it has ended. Raises ClientError."""
    found = service.call("GET", f"/v1/batches/{id}")
    with typer.progressbar(length=1, label=found["status"], file=sys.stderr, show_pos=True) as bar:
        while found["status"] not in ENDED:
            counts = found["request_counts"]
            bar.length, bar.label = max(1, counts["total"]), found["status"]
            bar.update(counts["completed"] + counts["failed"] - bar.pos)
            pause()
            found = service.call("GET", f"/v1/batches/{id}")
        bar.length = bar.pos = found["request_counts"]["total"]
        bar.render_progress()
    return found
