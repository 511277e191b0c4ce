"""Response blobs to train a dictionary with: made up, of every kind of item and tool, and the same at each call.

The shapes are written out here instead of taken from the types of the wire: a dictionary that was shipped never
changes, while the wire goes on. Nothing in it is anybody's text (prose.txt). Never measure with these.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

Json = dict[str, Any]

PROSE = Path(__file__).with_name("prose.txt")
SEED = 1
COUNT = 6_000
"""How many blobs there are. More of them make no better dictionary."""

NOVEL = 0.3
"""In what part of the texts made-up words stand. A dictionary has a code for what it doesn't know, by how often letters
are used: it would be that of hexadecimal digits, as it knows everything else that it is trained with.
"""

KNOWN_LETTERS = 2
"""A letter of a made-up word follows from so many before it, as in prose.txt."""

MODELS = ("gpt-oss-20b", "gpt-oss-120b", "openai/gpt-oss-20b", "openai/gpt-oss-120b")
STATUSES = ("completed",) * 8 + ("incomplete", "incomplete", "failed", "cancelled", "queued", "in_progress")
NAMES = (
    *("get_weather", "search", "get_current_time", "send_email", "read_file", "write_file", "list_files", "run_query"),
    *("create_event", "get_user", "update_record", "calculate", "fetch_url", "bash", "edit", "todo_write"),
)
ARGUMENTS = (
    *("location", "city", "query", "path", "file_path", "url", "name", "id", "user_id", "date", "start", "end"),
    *("limit", "count", "content", "text", "command", "description", "title", "email", "subject", "body", "unit"),
)
TYPES: tuple[Json, ...] = (
    *({"type": "string"}, {"type": "string", "description": "The name of the "}, {"type": "integer"}),
    *({"type": "number"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}),
    *({"type": "string", "enum": ["celsius", "fahrenheit"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    *({"type": ["string", "null"], "description": "Optional. "}, {"type": "object", "properties": {}}),
    {"type": "integer", "minimum": 1, "maximum": 100, "default": 10, "description": "The maximum number of results"},
)
ERRORS = (
    ("server_error", "The engine failed while it answered. Try again."),
    ("server_error", "The response was interrupted too often, and was given up."),
    ("rate_limit_exceeded", "Too many requests: limit reached. Try again later."),
)


class Samples:
    """Blobs, one after the other, from one source of chance."""

    def __init__(self, seed: int = SEED) -> None:
        self._chance = Random(seed)
        self._sentences = [line.replace("\\n", "\n") for line in PROSE.read_text().splitlines()]
        self._prose = " ".join(self._sentences)
        self._following: dict[str, list[str]] = defaultdict(list)
        for at in range(len(self._prose) - KNOWN_LETTERS):
            before = self._prose[at : at + KNOWN_LETTERS]
            self._following[before].append(self._prose[at + KNOWN_LETTERS])
        self._kinds: tuple[Callable[[str, int], Json], ...] = (
            *(self._message, self._message, self._message, self._function_call, self._function_call, self._preamble),
            *(self._custom_call, self._shell_call, self._apply_patch, self._code_call, self._web_search),
            *(self._file_search, self._mcp_call, self._mcp_list, self._approval_request, self._tool_search),
            *(self._local_shell, self._compaction),
        )

    def blobs(self, count: int = COUNT) -> Iterator[bytes]:
        """So many, each as the store compresses it: msgpack of the response's JSON and that of its items."""
        for number in range(count):
            if number % 12 == 0:
                yield self._packed(self._conversation(), [])
            else:
                digits = self._digits()
                yield self._packed(self._response(digits), self._items(digits))

    def _packed(self, response: Json, items: list[Json]) -> bytes:
        texts = (json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode() for each in (response, items))
        return msgspec.msgpack.encode(tuple(texts))

    # --- what is by chance ---

    def _digits(self) -> str:
        return f"{self._chance.getrandbits(192):048x}"

    def _pick(self, *values: Any) -> Any:
        return values[self._chance.randrange(len(values))]

    def _number(self, most: int) -> int:
        return int(10 ** self._chance.uniform(0, len(str(most)) - 1))

    def _moment(self) -> int:
        return 1_750_000_000 + self._chance.randrange(100_000_000)

    def _text(self, most: int = 4) -> str:
        if self._chance.random() >= NOVEL:
            return self._known(most)
        words = self._words(self._chance.randrange(20, 100 * most))
        return words if self._chance.random() < 0.5 else f"{self._known(1)} {words}"

    def _words(self, chars: int) -> str:
        at = self._chance.randrange(len(self._prose) - KNOWN_LETTERS)
        words = self._prose[at : at + KNOWN_LETTERS]
        while len(words) < chars and (following := self._following.get(words[-KNOWN_LETTERS:])):
            words += self._pick(*following)
        return words

    def _known(self, most: int) -> str:
        said = (self._pick(*self._sentences) for _ in range(self._chance.randrange(1, most + 1)))
        return self._pick(" ", "\n\n", "\n").join(said)

    def _sealed(self) -> str:
        return f"{self._chance.getrandbits(512):0128x}"

    def _arguments(self) -> Json:
        names = self._chance.sample(ARGUMENTS, self._chance.randrange(4))
        return {name: self._pick(self._number(1000), True, "", "the first", ["one"]) for name in names}

    # --- the response ---

    def _conversation(self) -> Json:
        metadata = self._pick({}, {"title": self._text(1)}, {"topic": "demo", "user": "one"})
        shown = {"id": f"conv_{self._digits()}", "created_at": self._moment(), "metadata": metadata}
        return self._pick({**shown, "object": "conversation"}, {"omits": f"msg_{self._digits()}0001"})

    def _response(self, digits: str) -> Json:
        status, created = self._pick(*STATUSES), self._moment()
        before = self._pick(None, f"resp_{digits[:2]}{self._digits()[2:]}", f"resp_{digits[:24]}{self._digits()[24:]}")
        ended = created + self._number(100)
        return {
            "object": "response",
            "id": f"resp_{digits}",
            "created_at": created,
            "status": status,
            "model": self._pick(*MODELS),
            "instructions": self._pick(None, None, self._text(3)),
            "previous_response_id": before,
            "tools": self._tools(),
            "tool_choice": self._choice(),
            "parallel_tool_calls": self._pick(True, True, True, False),
            "max_output_tokens": self._pick(None, None, 64, 256, 1024, 4096, 16384),
            "max_tool_calls": self._pick(None, None, None, 5),
            "temperature": self._pick(1.0, 1.0, 1.0, 0.0, 0.7),
            "top_p": self._pick(1.0, 1.0, 1.0, 0.95),
            "reasoning": {
                "effort": self._pick("medium", "medium", "low", "high"),
                "summary": self._pick(None, None, "auto", "detailed", "concise"),
                "context": self._pick("current_turn", "current_turn", "current_turn", "all_turns"),
            },
            "text": {"format": self._format(), "verbosity": self._pick("medium", "medium", "medium", "low", "high")},
            "metadata": self._pick({}, {}, {}, {"user_id": "1", "session_id": "2"}),
            "store": True,
            "safety_identifier": None,
            "prompt_cache_key": self._pick(None, None, self._digits()[:32]),
            "output": [] if status in ("queued", "in_progress") else self._output(digits),
            "usage": None if status in ("queued", "in_progress", "failed") else self._usage(),
            "error": self._error() if status == "failed" else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "completed_at": ended if status == "completed" else None,
            "background": self._pick(False, False, False, True),
            "service_tier": self._pick("default", "default", "default", "priority", "flex", "auto"),
            "truncation": self._pick("disabled", "disabled", "disabled", "auto"),
            "top_logprobs": self._pick(0, 0, 0, 2),
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            **self._pick({}, {}, {"user": "user_1"}, {"conversation": {"id": f"conv_{self._digits()}"}}),
        }

    def _error(self) -> Json:
        code, message = self._pick(*ERRORS)
        return {"code": code, "message": message}

    def _usage(self) -> Json:
        read, cached = self._number(100_000), self._pick(0, self._number(10_000))
        written, thought = self._number(10_000), self._number(1000)
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": thought, "tool_output_tokens": self._pick(0, 0, thought)},
            "total_tokens": read + written,
        }

    def _schema(self) -> Json:
        names = self._chance.sample(ARGUMENTS, self._chance.randrange(1, 5))
        properties = {name: self._pick(*TYPES) for name in names}
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}

    def _format(self) -> Json:
        name = self._pick("answer", "output", "result", "report", "response")
        named = {"type": "json_schema", "name": name, "description": None, "schema": self._schema(), "strict": True}
        return self._pick(*[{"type": "text"}] * 5, {"type": "json_object"}, named)

    def _choice(self) -> str | Json:
        named = {"type": "function", "name": self._pick(*NAMES)}
        return self._pick(*["auto"] * 5, "required", "none", named)

    def _tools(self) -> list[Json]:
        declared: list[Json] = [
            {
                "type": "function",
                "name": name,
                "description": self._pick("Get the ", "Search the web for ", "Returns the ", self._text(1)),
                "parameters": self._schema(),
                "strict": self._pick(True, False),
            }
            for name in self._chance.sample(NAMES, self._pick(0, 0, 0, 1, 2, 3))
        ]
        others: tuple[Json, ...] = (
            {"type": "web_search", "search_context_size": "medium", "user_location": None},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "code_interpreter", "container": f"cntr_{self._digits()}"},
            {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 10, "filters": None},
            {"type": "mcp", "server_label": "tools", "server_url": "https://", "require_approval": "never"},
            {"type": "custom", "name": "apply", "description": self._text(1), "format": {"type": "text"}},
            {
                "type": "custom",
                "name": "code",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: "},
            },
            *({"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}, {"type": "tool_search"}),
            {"type": "namespace", "name": "crm", "description": self._text(1), "tools": declared},
        )
        return [*declared, *self._pick([], [], [self._pick(*others)])]

    # --- its output ---

    def _output(self, digits: str) -> list[Json]:
        count = self._pick(1, 1, 1, 2, 3)
        items = [self._reasoning(digits, 0)] if self._pick(True, True, True, False) else []
        for _ in range(count):
            items.append(self._pick(*self._kinds)(digits, len(items)))
        return items

    def _id(self, prefix: str, digits: str, place: int) -> Json:
        return {"id": f"{prefix}_{digits}{place:04x}"}

    def _called(self, digits: str, place: int) -> Json:
        return {"call_id": f"call_{digits}{place:04x}"}

    def _state(self) -> Json:
        return {"status": self._pick(*["completed"] * 6, "incomplete", "failed")}

    def _reasoning(self, digits: str, place: int) -> Json:
        thought = {
            "type": "reasoning",
            **self._id("rs", digits, place),
            **self._state(),
            "content": [{"type": "reasoning_text", "text": self._text(3)}],
            "summary": self._pick([], [], [{"type": "summary_text", "text": self._text(1)}]),
        }
        return self._pick(thought, thought, thought | {"encrypted_content": self._sealed()})

    def _message(self, digits: str, place: int, phase: str = "final_answer") -> Json:
        part = {"type": "output_text", "text": self._text(5), "annotations": self._citations(), "logprobs": []}
        if self._pick(*[False] * 15, True):
            part["logprobs"] = [self._logprob(self._pick([], [self._logprob([])])) for _ in range(3)]
        content = {"phase": phase, "content": [part], "role": "assistant"}
        return {"type": "message", **self._id("msg", digits, place), **self._state(), **content}

    def _preamble(self, digits: str, place: int) -> Json:
        return self._message(digits, place, "commentary")

    def _logprob(self, top: list[Json]) -> Json:
        token = self._pick(" the", " a", ".", ",", "\n", " is")
        found = {"token": token, "logprob": -self._chance.random(), "bytes": list(token.encode())}
        return found | {"top_logprobs": top}

    def _citations(self) -> list[Json]:
        span = {"start_index": self._number(1000), "end_index": self._number(1000)}
        cited = {"type": "url_citation", "url": "https://www.example.com/", "title": self._text(1), **span}
        made = {"type": "container_file_citation", "container_id": "cntr_", "file_id": "cfile_", "filename": "a.png"}
        file = {"type": "file_citation", "file_id": "file-1", "filename": "notes.md", "index": span["end_index"]}
        return self._pick(*[[]] * 6, [cited], [made | span], [file])

    def _function_call(self, digits: str, place: int) -> Json:
        arguments = json.dumps(self._arguments(), separators=self._pick((",", ":"), None))
        named = {"name": self._pick(*NAMES), "arguments": arguments}
        called = {**self._id("fc", digits, place), **self._called(digits, place), **named}
        return {"type": "function_call", **called, **self._state()}

    def _custom_call(self, digits: str, place: int) -> Json:
        called = {**self._called(digits, place), "name": "apply", "input": self._text(2)}
        return {"type": "custom_tool_call", **self._id("ctc", digits, place), **called, **self._state()}

    def _tool_search(self, digits: str, place: int) -> Json:
        called = {**self._called(digits, place), "arguments": self._arguments()}
        item = {"type": "tool_search_call", **self._id("tsc", digits, place), **called, **self._state()}
        return item | {"execution": "client"}

    def _shell_call(self, digits: str, place: int) -> Json:
        action = {"commands": ["ls -la"], "timeout_ms": self._pick(None, 10000), "max_output_length": None}
        called = {**self._called(digits, place), "action": action}
        return {"type": "shell_call", **self._id("sh", digits, place), **called, **self._state()}

    def _local_shell(self, digits: str, place: int) -> Json:
        action = {"type": "exec", "command": ["bash", "-lc", "ls"], "env": {}, "timeout_ms": None}
        called = {**self._called(digits, place), "action": action | {"user": None, "working_directory": None}}
        return {"type": "local_shell_call", **self._id("lsh", digits, place), **called, **self._state()}

    def _apply_patch(self, digits: str, place: int) -> Json:
        change = {"type": self._pick("update_file", "create_file"), "path": "src/main.py", "diff": "@@\n-    \n+    "}
        called = {**self._called(digits, place), "operation": change}
        return {"type": "apply_patch_call", **self._id("apc", digits, place), **called, **self._state()}

    def _code_call(self, digits: str, place: int) -> Json:
        outputs = self._pick(None, [{"type": "logs", "logs": "1\n"}])
        ran = {"container_id": f"cntr_{self._digits()}", "outputs": outputs}
        item = {"type": "code_interpreter_call", **self._id("ci", digits, place), "code": self._text(1)}
        return item | self._state() | ran

    def _web_search(self, digits: str, place: int) -> Json:
        search = {"type": "search", "query": self._text(1), "queries": ["one"], "sources": []}
        page = {"type": "open_page", "url": "https://www.example.com/"}
        find = {"type": "find_in_page", "url": "https://en.wikipedia.org/wiki/", "pattern": "the"}
        item = {"type": "web_search_call", **self._id("ws", digits, place), **self._state()}
        return item | {"action": self._pick(search, page, find)}

    def _file_search(self, digits: str, place: int) -> Json:
        result = {"file_id": "file-1", "filename": "notes.md", "score": 0.9, "text": self._text(1), "attributes": {}}
        item = {"type": "file_search_call", **self._id("fs", digits, place), "queries": [self._text(1)]}
        return item | self._state() | {"results": self._pick(None, None, [result])}

    def _mcp(self) -> Json:
        return {"server_label": "tools", "name": self._pick(*NAMES), "arguments": json.dumps(self._arguments())}

    def _mcp_call(self, digits: str, place: int) -> Json:
        failed = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "Error: "}]}
        said = self._pick({"output": self._text(2), "error": None}, {"output": None, "error": failed})
        item = {"type": "mcp_call", **self._id("mcp", digits, place), **self._mcp(), **self._state()}
        return item | said | {"approval_request_id": self._pick(None, None, f"mcpr_{digits}0001")}

    def _approval_request(self, digits: str, place: int) -> Json:
        return {"type": "mcp_approval_request", **self._id("mcpr", digits, place), **self._mcp()}

    def _mcp_list(self, digits: str, place: int) -> Json:
        tools = [
            {"name": name, "description": self._text(1), "input_schema": self._schema(), "annotations": None}
            for name in self._chance.sample(NAMES, 2)
        ]
        return {"type": "mcp_list_tools", **self._id("mcpl", digits, place), "server_label": "tools", "tools": tools}

    def _compaction(self, digits: str, place: int) -> Json:
        return {"type": "compaction", **self._id("cmp", digits, place), "encrypted_content": self._sealed()}

    # --- its input ---

    def _items(self, digits: str) -> list[Json]:
        return [self._item(digits, place) for place in range(0x8000, 0x8000 + self._pick(1, 1, 1, 2, 3))]

    def _item(self, digits: str, place: int) -> Json:
        id, called = self._id("msg", digits, place), {"call_id": f"call_{self._digits()}0001"}
        said = {"content": [self._part()], "status": "completed"}
        told = {"output": self._pick(self._text(2), '{"result": "ok"}', [self._part()]), "status": "completed"}
        by_user = {"type": "message", "role": self._pick("user", "user", "user", "developer", "system"), **said, **id}
        answer = [{"type": "output_text", "text": self._text(2)}]
        by_model = {"type": "message", "role": "assistant", "content": answer, "status": "completed", **id}
        asked = {"name": self._pick(*NAMES), "arguments": json.dumps(self._arguments()), "status": "completed"}
        return self._pick(
            *[by_user] * 8,
            *[{"type": "function_call_output", **called, **told, **self._id("fco", digits, place)}] * 3,
            {"type": "custom_tool_call_output", **called, **told, **self._id("cto", digits, place)},
            {"type": "function_call", **called, **asked, **self._id("fc", digits, place)},
            by_model,
            {**self._reasoning(digits, place), **self._id("rs", digits, place)},
            {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{digits}0001", "approve": True, **id},
        )

    def _part(self) -> Json:
        text = {"type": "input_text", "text": self._text(3)}
        image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,", "file_id": None}
        file = {"type": "input_file", "filename": "notes.txt", "file_data": "data:text/plain;base64,"}
        return self._pick(*[text] * 8, image, file)
