"""An S3 server over HTTP: moto, with one request at a time, as S3 carries out conditional writes.

python -m tests.support.archive.s3_server PORT
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

Application = Callable[..., Iterable[bytes]]


def one_at_a_time(application: Application) -> Application:
    """The application, of which no two requests are under way at once: moto looks first and stores then."""
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(application(environ, start))

    return answer


if __name__ == "__main__":
    served = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), served, threaded=True)
