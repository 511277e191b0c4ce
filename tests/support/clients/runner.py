"""Runs the cases of a client for Python, in that client's environment: `python runner.py with_litellm.py`.

It reads names of functions, a line each, calls each, and answers with a line of JSON: null, or the traceback of what
went wrong. What a client prints goes to standard error. Nothing of the project is here to be imported.
"""

import asyncio
import inspect
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

CASE_SECONDS = 30

Case = Callable[[], Any]


def in_time(case: Case) -> None:
    """Call what doesn't wait in a loop."""
    signal.alarm(CASE_SECONDS)
    try:
        case()
    finally:
        signal.alarm(0)


def ended(*_: object) -> NoReturn:
    raise TimeoutError(f"took more than {CASE_SECONDS} s")


def outcome(case: Case, loop: asyncio.Runner) -> str | None:
    """What calling it comes to."""
    try:
        if inspect.iscoroutinefunction(case):
            loop.run(asyncio.wait_for(case(), CASE_SECONDS))
        else:
            in_time(case)
    except Exception:
        return traceback.format_exc()
    return None


def main(script: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGALRM, ended)
    cases = runpy.run_path(script)
    with asyncio.Runner() as loop:  # one for all: clients keep their connections
        for line in sys.stdin:
            print(json.dumps(outcome(cases[line.strip()], loop)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
