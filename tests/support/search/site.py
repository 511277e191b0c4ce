"""A search service of SearXNG's form and the one page that it finds, which count what they are asked, and may wait."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HELD_SECONDS = 60.0
"""How long an answer that waits does so at most."""


class Site:
    """The service at `url`, and the paths that were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.free = {"/search": threading.Event(), "/page": threading.Event()}
        """Set where a path answers at once."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                site.asked.append(path)
                site.free[path].wait(HELD_SECONDS)
                found = {"results": [{"url": f"{site.url}/page", "title": "Tides", "content": "High water."}]}
                body = json.dumps(found) if path == "/search" else "<title>Tides</title><p>High water is at ten."
                self.send_response(200)
                self.send_header("content-type", "application/json" if path == "/search" else "text/html")
                self.send_header("content-length", str(len(body)))
                with suppress(ConnectionError):  # who asked may be dead
                    self.end_headers()
                    self.wfile.write(body.encode())

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Nothing is said."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def let_go(self) -> None:
        for free in self.free.values():
            free.set()

    def close(self) -> None:
        """It answers nobody any more."""
        self.let_go()
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def searched_site() -> Iterator[Site]:
    """A site until the end of the block; what it is asked waits."""
    site = Site()
    try:
        yield site
    finally:
        site.close()
