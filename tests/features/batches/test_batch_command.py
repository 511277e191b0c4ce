"""`harmonium batch` and `harmonium jobs`: a file goes up, its answers come down, and a batch under way is listed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.features.batches.command import app
from tests.support.batches import lines
from tests.support.service.commands import said
from tests.support.service.process import ServiceProcess
from tests.support.waiting import wait_until


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    process = ServiceProcess(tmp_path / "service", demo_tokens_per_second=500)
    monkeypatch.setenv("HARMONIUM_URL", process.url)
    yield process
    process.stop()


def test_a_file_is_answered_and_its_answers_are_fetched(
    service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked.jsonl"
    asked.write_text("\n".join(lines({"input": "Count to 2."}, {"input": "b", "temperature": 9})))
    result = CliRunner().invoke(app, [str(asked)])
    assert (result.exit_code, result.stdout) == (1, "completed: 1 of 2 answered, 1 failed\n"), result.output
    (made,) = map(json.loads, (tmp_path / "asked.output.jsonl").read_text().splitlines())
    assert made["response"]["body"]["output"][-1]["content"][0]["text"] == "1\n2"
    (refused,) = map(json.loads, (tmp_path / "asked.errors.jsonl").read_text().splitlines())
    assert refused["response"]["status_code"] == 400
    named = tmp_path / "batch_of_mine.jsonl"
    named.write_bytes(b"\xef\xbb\xbf\r\n" + asked.read_bytes().splitlines()[0])
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [named.name])
    assert (result.exit_code, result.stdout) == (0, "completed: 1 of 1 answered, 0 failed\n"), result.output
    (tmp_path / "wrong.jsonl").write_text("{")
    for wrong in "wrong.jsonl", "absent.jsonl":
        assert CliRunner().invoke(app, [str(tmp_path / wrong)]).exit_code == 2
    assert "wrong.jsonl" not in [each.filename for each in service.client().files.list()]


def test_a_batch_under_way_is_among_the_jobs(service: ServiceProcess) -> None:
    client = service.client()
    content = "\n".join(lines(*[{"input": "Count to 10000."}] * 3)).encode()
    file = client.files.create(file=("asked.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="8h")
    wait_until(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    (line,) = [line for line in said("jobs").splitlines() if line.startswith(batch.id)]
    assert "in_progress" in line
    assert line.endswith("within 8h  0 of 3 answered, 0 failed")
    client.batches.cancel(batch.id)
    wait_until(lambda: client.batches.retrieve(batch.id).status == "cancelled", 90)
    assert batch.id not in said("jobs")
