"""Input items and function tools, short to write. Whole requests are in corpus.py."""

from typing import Any

Json = dict[str, Any]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def developer(text: str, role: str = "developer") -> Json:
    return {"role": role, "content": text}


def answer(*texts: str, **members: str) -> Json:
    """An assistant's message, in one part or more."""
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts, **members}


def preamble(text: str) -> Json:
    """What an assistant says before it calls a function."""
    return answer(text, phase="commentary")


def thought(*texts: str) -> Json:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": each} for each in texts]}


def call(call_id: str = "call_1", name: str = "lookup", arguments: str = '{"q":"tide"}') -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(text: str, call_id: str = "call_1") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def tool(name: str, parameters: Json | None = None, **members: Any) -> Json:
    """A function that the model may call."""
    return {"type": "function", "name": name, "parameters": parameters, "strict": False, **members}


def takes(*required: str, **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


LOOKUP = tool("lookup", takes("q", q={"type": "string"}), description="Looks a word up.")
