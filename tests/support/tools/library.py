"""An MCP server whose tools stand for `file_search`, in a process of its own: one that keeps to the contract of
docs/tools.md, but for what a query asks of it, and others that don't.

What each call was given is noted, for tests to read.
"""

import json
import sys
from pathlib import Path
from typing import Any

TIDES = {
    "file_id": "file-tides",
    "filename": "tides.md",
    "text": "High water is at ten.",
    "score": 0.9,
    "attributes": {"year": 2026, "kind": "table"},
}
MOON = {"file_id": "file-moon", "filename": "moon.md", "text": "It makes high water.", "score": 0.4}


def given(folder: Path) -> list[dict[str, Any]]:
    """What the calls so far were given."""
    path = folder / "given"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def found(query: str) -> Any:
    """What a query finds, right or wrong."""
    match query:
        case "nothing":
            return {"results": []}
        case "many":
            return {"results": [TIDES | {"file_id": f"file-{number}"} for number in range(60)]}
        case "long":
            return {"results": [TIDES | {"text": "x" * 20_000}, MOON | {"text": "y" * 20_000}, MOON]}
        case "no name":
            return {"results": [TIDES, {"file_id": "file-x", "text": "Who?", "score": 0.1}]}
        case "no list":
            return {"found": [TIDES]}
        case "fail":
            raise ValueError("the index is being built")
        case _:
            return {"results": [TIDES, MOON]}


def add_tools(server: Any, folder: Path) -> None:
    """The tools of the server; what they are given is noted in a folder."""

    def note(said: dict[str, Any]) -> None:
        with (folder / "given").open("a") as file:
            file.write(json.dumps(said) + "\n")

    @server.tool()
    def search(
        queries: list[str],
        vector_store_ids: list[str],
        filters: dict[str, Any] | None = None,
        max_num_results: int | None = None,
        ranking_options: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Searches the library's tables."""
        said = {"filters": filters, "max_num_results": max_num_results, "ranking_options": ranking_options}
        note({"queries": queries, "vector_store_ids": vector_store_ids} | said)
        return found(queries[0])

    @server.tool(structured_output=False)
    def plain(queries: list[str], vector_store_ids: list[str]) -> str:
        """Searches, takes nothing beside, and answers with a text."""
        note({"queries": queries, "vector_store_ids": vector_store_ids})
        return json.dumps(found(queries[0]))

    @server.tool()
    def look(query: str) -> str:
        """No search of files: it takes one query."""
        return query


def main() -> None:
    """Serve until killed."""
    import uvicorn
    from mcp.server.mcpserver import MCPServer

    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    server = MCPServer("library")
    add_tools(server, folder)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
