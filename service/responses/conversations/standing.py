"""What is in effect in a conversation, by the items that its turns have."""

from service.api.input.configuration import ROLE, Configuration, read_note
from store.turn import Chain


def configuration_of(chain: Chain) -> Configuration:
    """The settings that a conversation with this chain has by now."""
    found = Configuration()
    for note in chain.notes().get(ROLE, ()):
        found = found.then(read_note(note.name or "{}"))
    return found
