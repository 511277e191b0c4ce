"""Ports for servers that are started later, in processes of their own."""

import random
import socket

FIRST, LAST = 15_000, 32_000
"""Where no system looks for the port of a connection that somebody makes: Linux takes those from 32,768 on."""

_chance = random.SystemRandom()


def free_port() -> int:
    """A TCP port that nobody listens on, and that nobody else is likely to take until it is listened on."""
    while True:
        port = _chance.randrange(FIRST, LAST)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:  # taken
            continue
