"""Ports for servers that are started later, in processes of their own.

Linux takes the ports of connections that somebody makes from 32,768 on, so all of ours lie below. Tests that run at the
same time look in different places: between the look and the server's start, nobody else takes the port.
"""

import os
import random
import socket
from collections import deque

FIRST, LAST = 25_000, 32_000
"""Where servers over HTTP are put."""

PLACES = 8
"""Into how many equal parts a range is cut, one for each of pytest-xdist's workers."""

LATELY = 64
"""How many ports that were found are not found again, as their servers may not listen yet."""

_found: deque[int] = deque(maxlen=LATELY)
_chance = random.SystemRandom()  # tests seed the other one


def free_port(first: int = FIRST, last: int = LAST) -> int:
    """A TCP port in this worker's part of a range (the last one excluded) that nobody listens on, nor will soon."""
    places = range(first, last)
    worker = os.environ.get("PYTEST_XDIST_WORKER")  # as "gw2"; servers that a test starts inherit it
    if worker is not None:
        places = places[int(worker.removeprefix("gw")) % PLACES :: PLACES]
    while True:
        port = _chance.choice(places)
        if port in _found:
            continue
        try:
            with socket.create_server(("127.0.0.1", port)):
                _found.append(port)
                return port
        except OSError:  # taken
            continue
