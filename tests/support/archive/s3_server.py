"""An S3 server over HTTP: moto, with one request at a time, as S3 carries out conditional writes.

python -m tests.support.archive.s3_server PORT [JOURNAL]

moto has all in memory. With a journal, what it was asked to change is in that file before it answers, and is asked of
it again when it starts: so it may be killed, and loses nothing that it acknowledged.
"""

import base64
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.test import EnvironBuilder, run_wsgi_app

Application = Callable[..., Iterable[bytes]]

CHANGES = ("PUT", "POST", "DELETE")


def one_at_a_time(application: Application) -> Application:
    """The application, of which no two requests are under way at once: moto looks first and stores then."""
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start))

    return answer


def with_journal(application: Application, journal: Path) -> Application:
    """The application, which has been asked again for all that the journal says, and notes there what changes it."""
    for line in journal.read_bytes().splitlines(keepends=True) if journal.exists() else ():
        if line.endswith(b"\n"):  # else it was killed as it wrote, and has never answered that one
            asked = json.loads(line)
            made = EnvironBuilder(**asked | {"data": base64.b64decode(asked["data"])})
            run_wsgi_app(application, made.get_environ(), buffered=True)
    notes = journal.open("ab")

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        told: list[str] = []

        def noting_start(status: str, *more: Any) -> Any:
            told.append(status)
            return start(status, *more)

        answered = list(application(environ | {"wsgi.input": io.BytesIO(body)}, noting_start))
        if environ["REQUEST_METHOD"] in CHANGES and told[0].startswith("2"):
            notes.write(json.dumps(_asked(environ, body)).encode() + b"\n")
            notes.flush()
            os.fsync(notes.fileno())
        return answered

    return answer


def _asked(environ: dict[str, Any], body: bytes) -> dict[str, Any]:
    """A request as EnvironBuilder takes it."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    return {
        "path": environ["PATH_INFO"],
        "query_string": environ["QUERY_STRING"],
        "method": environ["REQUEST_METHOD"],
        "base_url": f"http://{environ['HTTP_HOST']}",
        "headers": headers,
        "content_type": environ.get("CONTENT_TYPE"),
        "data": base64.b64encode(body).decode(),
    }


if __name__ == "__main__":
    port, *journals = sys.argv[1:]
    served: Application = DomainDispatcherApplication(create_backend_app)
    for journal in journals:
        served = with_journal(served, Path(journal))
    run_simple("127.0.0.1", int(port), one_at_a_time(served), threaded=True)
