"""An MCP server as the official package makes it, in a process of its own.

Every call is written to a file, so that tests can count what really happened, whoever died meanwhile.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.pictures import png
from tests.support.ports import free_port
from tests.support.waiting import until, wait_until

START_SECONDS = 60.0
HELD_SECONDS = 60.0
"""How long a call that waits does so at most."""


class McpServer:
    """Where a server is, and what was asked of it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._folder = folder

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls that began, with what became of each that ended."""
        path = self._folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def began(self, tool: str, given: str | None = None) -> int:
        """How many calls of a tool began; those alone that were `given` this, where that is said."""
        return sum(
            call["began"] == tool and given in (None, call.get("given")) for call in self.calls if "began" in call
        )

    def ended(self, tool: str) -> int:
        """How many calls of a tool ran to their end."""
        return sum(call == {"ended": tool} for call in self.calls)

    def cancelled(self, tool: str) -> int:
        """How many calls of a tool were told to stop."""
        return sum(call == {"cancelled": tool} for call in self.calls)

    def hold(self) -> None:
        """Let calls wait again."""
        (self._folder / "go").unlink(missing_ok=True)

    def let_go(self) -> None:
        """Let those calls end that wait."""
        (self._folder / "go").touch()


@contextmanager
def mcp_server(folder: Path, module: str = "tests.support.tools.server") -> Iterator[McpServer]:
    """A running server until the end of the block: this one, or that of another module."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", module, str(port), str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[3])
    try:
        wait_until(lambda: _answers(port), START_SECONDS, "the MCP server doesn't answer")
        yield McpServer(port, folder)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/up", trust_env=False).status_code == 404
    except httpx.TransportError:
        return False


def add_tools(server: Any, folder: Path) -> None:
    """The tools of the server; what is done with them is noted in a folder."""
    from mcp_types import ImageContent, TextContent, ToolAnnotations

    def note(what: str, tool: str, given: str | None = None) -> None:
        with (folder / "calls").open("a") as file:
            file.write(json.dumps({what: tool} | ({} if given is None else {"given": given})) + "\n")
            file.flush()
            os.fsync(file.fileno())

    async def held(tool: str, given: str) -> str:
        note("began", tool, given)
        try:
            await until((folder / "go").exists, HELD_SECONDS)
        except asyncio.CancelledError:
            note("cancelled", tool)
            raise
        note("ended", tool)
        return f"{tool} done"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        note("began", "add")
        note("ended", "add")
        return a + b

    @server.tool()
    async def send_mail(to: str) -> str:
        """Sends a mail, which nobody can take back."""
        return await held("send_mail", to)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def look_up(word: str) -> str:
        """Looks a word up, for as long as it takes."""
        return await held("look_up", word)

    @server.tool()
    def fail() -> str:
        """Fails."""
        note("began", "fail")
        raise ValueError("no such city")

    @server.tool()
    def picture(greys: list[int] | None = None) -> list[TextContent | ImageContent]:
        """A text and an image that is none, or images of these greys."""
        images = [b"x" * 10] if greys is None else [png(grey=grey) for grey in greys]
        shown = [base64.b64encode(each).decode() for each in images]
        parts = [ImageContent(type="image", data=data, mime_type="image/png") for data in shown]
        return [TextContent(type="text", text="here"), *parts]

    @server.tool()
    def long(n: int) -> str:
        """A long text."""
        return "x" * n

    @server.tool()
    def noise(n: int) -> str:
        """A long text that can't be packed."""
        note("began", "noise")
        return base64.b64encode(os.urandom(n))[:n].decode()


def main() -> None:
    """Serve until killed."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    server = MCPServer("fixture", instructions="Tools of a test.")
    add_tools(server, folder)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
