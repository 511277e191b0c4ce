"""A server of 200 tools over standard input and output, as a company's is: `python many.py NAME`. Each says its name
again; the first is called NAME. Nothing of the project is here to be imported.
"""

import json
import sys
from typing import Any

TOOLS = 200


def answer(method: str, told: dict[str, Any], first: str) -> dict[str, Any]:
    """The result of a request."""
    match method:
        case "initialize":
            version = told["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "many", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {"place": {"type": "string"}}}
            names = [first, *(f"chart_{number}" for number in range(1, TOOLS))]
            return {"tools": [{"name": name, "description": "Looks it up.", "inputSchema": schema} for name in names]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"{told['name']} says it is {told['arguments']}"}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(request["method"], request.get("params", {}), sys.argv[1])
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
