"""What the store's README shows can be typed as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import store
from store.fsck import inspection
from store.redis import scripts

README = Path(store.__file__).with_name("README.md")


def test_the_examples_run_as_they_stand(tmp_path: Path) -> None:
    shown: list[str] = []
    for example in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=30
        )
        assert (run.returncode, run.stderr) == (0, "")
        shown.append(run.stdout)
    talk, converse, work = shown
    assert talk.count("resp_") == 2  # the reply and the turn that was forgotten
    assert converse.count("resp_") == 2  # the turn with which the conversation begins, and the reply
    assert work == "[LogEntry(last=4, blob=b'events 2 to 4'), LogEntry(last=6, blob=b'events 5 and 6')]\n"


def test_every_file_is_in_the_table() -> None:
    listed = set(re.findall(r"`([\w/]+\.py)`", README.read_text()))
    files = {path.relative_to(README.parent) for path in README.parent.rglob("*.py")}
    assert listed == {path.as_posix() for path in files if path.name != "__init__.py"}


def test_every_script_is_in_the_table() -> None:
    listed = re.findall(r"(?m)^\| \[(\w+)\]\(redis/lua/\w+\.lua\) \|", README.read_text())
    assert sorted(listed) == sorted(script.name for script in scripts.ALL)


def test_every_key_that_fsck_knows_is_in_the_table_and_no_other() -> None:
    row = r"(?m)^\| `([a-z-]+)[:A-Z/]*`[^|]* \| (?:string|hash|zset|set|stream) \|"
    listed = set(re.findall(row, README.read_text()))
    patterns = (inspection._TURN, inspection._PICTURE, inspection._OWN, inspection._OTHER)
    named = re.findall(rb"(?<![\w-])[a-z]+(?:-[a-z]+)*(?=[:|)])", b" ".join(each.pattern for each in patterns))
    known = {name.partition(":")[0] for name in inspection.KINDS} | {name.decode() for name in named} - {"t"}
    assert listed ^ known == {"whole"}  # which is never there
