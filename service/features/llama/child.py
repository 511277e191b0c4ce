"""A llama.cpp server in a process of its own, and what that process runs: `python -m service.features.llama.child`.

The parent says what to serve by a line of JSON on the input. The process answers by one on its output where it listens,
or why it doesn't. It ends when its input does, which is with its parent however that dies. PyPI's `xllamacpp` has
llama.cpp's own server inside. Never import it elsewhere: it has threads of its own.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec


class WantedServer(msgspec.Struct, frozen=True):
    """A llama.cpp server to start: it serves a GGUF file as `alias` to clients with the `key`, at a port (0 is any).

    It has `slots` for as many generations at once, each with a context of `context_tokens`; with 0 they share the
    model's own context. `options` are llama.cpp's own, by the names that xllamacpp's CommonParams has for them.
    """

    path: str
    alias: str
    key: str
    port: int
    slots: int
    context_tokens: int
    options: Mapping[str, Any] = {}


class Began(msgspec.Struct, frozen=True):
    """Where it listens, or why it doesn't."""

    url: str = ""
    failed: str = ""


_serving: list[Any] = []
"""The server, which ends with its owner."""


def main() -> None:
    """Serve until the input ends."""
    wanted = msgspec.json.decode(sys.stdin.buffer.readline(), type=WantedServer)
    said = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # llama.cpp speaks on both
    try:
        began = Began(url=_serve(wanted))
    except Exception as error:  # whatever it is, the parent has to hear of it
        began = Began(failed=f"{type(error).__name__}: {error}")
    os.write(said, msgspec.json.encode(began) + b"\n")
    if began.url:
        sys.stdin.buffer.read()
    os._exit(0)  # its threads have nothing to tidy up


def _serve(wanted: WantedServer) -> str:
    """Start the server. Returns its URL."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = wanted.path
    params.model_alias = {wanted.alias}
    params.api_keys = [wanted.key]
    params.hostnames = ["127.0.0.1"]
    params.port = wanted.port
    params.n_parallel = wanted.slots
    params.n_ctx = wanted.slots * wanted.context_tokens
    params.swa_full = True  # else gpt-oss forgets all but the last 128 tokens of what it sampled
    params.cache_ram_mib = 0
    params.prefill_assistant = False  # else a prompt that ends with an answer has it without its end, as if cut short
    for name, value in wanted.options.items():
        *places, last = name.split(".")
        options: Any = params
        for place in places:
            options = getattr(options, place, None)
        if not hasattr(options, last):
            raise ValueError(f"llama.cpp has no option {name!r}")
        setattr(options, last, value)
    server = xllamacpp.Server(params)
    _serving.append(server)
    return str(server.listening_address)


if __name__ == "__main__":
    main()
