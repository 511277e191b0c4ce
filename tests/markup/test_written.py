"""What a model's card says that it writes."""

from service.markup.families import FAMILIES
from service.markup.speech import Speech
from service.markup.tags import Written, written_by


def test_gpt_oss_reasons_and_calls() -> None:
    assert written_by(None) == Written("harmony", reasoning=True, calls=True, held_calls=True)


def test_a_family_has_what_its_markup_has() -> None:
    assert written_by(Speech("qwen3")) == Written("qwen", reasoning=True, calls=True, held_calls=True)
    assert written_by(Speech("hermes")) == Written("hermes", reasoning=False, calls=True, held_calls=True)
    assert written_by(Speech("seed-oss")) == Written("seed", reasoning=True, calls=True, held_calls=False)
    assert written_by(Speech("plain")) == Written("plain", reasoning=False, calls=False, held_calls=False)


def test_no_calls_are_held_that_are_not_read() -> None:
    written = [written_by(Speech(family)) for family in FAMILIES]
    assert not [each.markup for each in written if each.held_calls and not each.calls]
