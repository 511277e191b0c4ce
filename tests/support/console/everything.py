"""A conversation of 80 turns that has everything in it that the console shows, for the tests of its views."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.console.samples import WEATHER, said
from tests.support.pictures import png
from tests.support.service.process import ServiceProcess
from tests.support.tools.server import mcp_server

TURNS = 80

MARKDOWN = """# A heading

Some **bold** words, `code`, a [link](https://example.com/a), $a^2$ and ~~none~~:

1. one
   - two

> quoted

| Name | Value |
| --- | ---: |
| a long name for a cell | 1,000,000 |

```python
def double(number: int) -> int:
    \"\"\"Twice as much.\"\"\"
    return 2 * number  # no more
```

```sql
SELECT name, count(*) FROM users WHERE age > 21 GROUP BY name;
```

```nobody-knows
as it is
```"""

PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
ADDING: Any = {"type": "mcp", "server_label": "maths"}


@contextmanager
def serving_everything(folder: Path) -> Iterator[ServiceProcess]:
    """A service that has tools of every kind, until the end of the block."""
    (documents := folder / "documents").mkdir()
    (documents / "moon.md").write_text("# The moon\n\nIt makes high water, and [tides](https://other.invalid/).")
    with mcp_server(folder / "maths") as maths:
        (servers := folder / "mcp.toml").write_text(f'[maths]\nurl = "{maths.url}"\n')
        service = ServiceProcess(
            folder / "service",
            search="folder",
            search_dir=str(documents),
            mcp_servers=str(servers),
            sandbox="local",
        )
        try:
            yield service
        finally:
            service.stop()


def fill_with_everything(service: ServiceProcess) -> str:
    """Have the conversation; the id of its last turn."""
    picture = f"data:image/png;base64,{b64encode(png(grey=90)).decode()}"
    text = f"data:text/csv;base64,{b64encode(b'a,b').decode()}"
    parts = [
        {"type": "input_text", "text": "What is in both?"},
        {"type": "input_image", "image_url": picture},
        {"type": "input_file", "filename": "table.csv", "file_data": text},
    ]
    answered = [{"role": "user", "content": "Show me Markdown."}, {"role": "assistant", "content": MARKDOWN}]
    id = said(service, "My name is Ada.", instructions="Be brief.", metadata={"customer": "4711"})
    id = said(service, [*answered, {"role": "user", "content": "Thank you."}], id)
    id = said(service, [{"role": "user", "content": parts}], id)
    id = said(service, "What is the weather in Paris?", id, tools=[WEATHER])
    (call,) = [
        each.to_dict() for each in service.client().responses.retrieve(id).output if each.type == "function_call"
    ]
    id = said(service, [{"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees"}], id)
    id = said(service, "Search for the moon.", id, tools=[{"type": "web_search"}])
    id = said(service, "Use python: print(6 * 7)", id, tools=[PYTHON])
    id = said(service, "Use python: open('squares.csv', 'w').write('1,4,9')", id, tools=[PYTHON])
    for words, approve in (("Add 2 and 3.", True), ("Add 2 and 3.", False), ("Use the fail tool.", True)):
        id = said(service, words, id, tools=[ADDING])
        asked = service.client().responses.retrieve(id).output
        (request,) = [each.id for each in asked if each.type == "mcp_approval_request"]
        answer = {"type": "mcp_approval_response", "approval_request_id": request, "approve": approve}
        id = said(service, [answer if approve else answer | {"reason": "Not today."}], id, tools=[ADDING])
    id = said(service, "שלום " * 30 + "\u202e and " + "Donaudampfschifffahrt" * 12, id)
    id = said(service, "Write a story of 300 words.", id, max_output_tokens=16)
    fork = said(service, "Count to 4.", id)
    said(service, "Count to 5.", id)
    service.client().responses.delete(fork)
    for number in range(TURNS - 16):
        id = said(service, f"Question {number}: what is my name?", id, reasoning={"effort": "low"})
    return id
