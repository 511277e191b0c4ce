"""The end of servers in a test's own event loop, with all connections that they took.

asyncio makes a connection in several rounds of the loop after it was accepted. Where its server is closed meanwhile, it
fails, and its socket stays open until it is found in the middle of a later test (CPython's gh-109564).
"""

import asyncio

from aiohttp import web

ACCEPTING = "_accept_connection2"
"""The name of asyncio's coroutine that makes an accepted connection. It ends once the server knows of that."""


async def stop_listening(server: asyncio.Server) -> None:
    """Take no more connections; those that were accepted are known to the server."""
    await _until_made()
    server.close()


async def stop(runner: web.AppRunner) -> None:
    """Stop a server of one site, and close all its connections."""
    await _until_made()
    await runner.cleanup()


async def _until_made() -> None:
    """Return in a moment without accepted connections that are still to be made, in all of this loop."""
    while made := [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == ACCEPTING]:
        await asyncio.wait(made)
