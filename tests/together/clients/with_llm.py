"""`llm`, the command: prompts, conversations that it keeps itself, tools, schemas, and streams with the reasoning."""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ["HOME"]) / "llm"
FOLDER.mkdir(exist_ok=True)
MODEL = {
    "model_id": "harmonium",
    "model_name": os.environ["MODEL"],
    "api_base": os.environ["OPENAI_BASE_URL"],
    "responses": True,
    "reasoning": True,
    "supports_tools": True,
    "supports_schema": True,
}
(FOLDER / "extra-openai-models.yaml").write_text(json.dumps([MODEL]))  # which is YAML too
TOOL = '''
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"
'''


def llm(*arguments):
    """What the command prints to a pipe, and beside it."""
    done = subprocess.run(
        [sys.executable, "-m", "llm", "-m", "harmonium", *arguments],
        env=os.environ | {"LLM_USER_PATH": str(FOLDER)},
        stdin=subprocess.DEVNULL,  # else it is a part of the prompt
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_an_answer_is_streamed_and_the_reasoning_is_shown_once():
    said, thought = llm("Count to 3.")
    assert said == "1\n2\n3"
    assert thought.count("count to 3") == 1


def test_a_conversation_is_continued():
    llm("My name is Ada.")
    assert llm("-c", "What is my name?")[0] == "Your name is Ada."


def test_a_function_is_called_and_answered():
    said, _ = llm("--functions", TOOL, "What is the weather in Paris? Use the tool.")
    assert "18 degrees in Paris" in said


def test_an_answer_keeps_to_a_schema():
    said, _ = llm("--schema", "name, days int", "Plan 3 days in Oslo.")
    assert json.loads(said) == {"name": "Oslo", "days": 3}
