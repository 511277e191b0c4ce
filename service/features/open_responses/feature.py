"""Open Responses in a process: its dialect."""

from service.features.open_responses.dialect import OPEN_RESPONSES
from service.process import Feature


class OpenResponsesFeature(Feature):
    """Open Responses."""

    dialects = (OPEN_RESPONSES,)


FEATURE = OpenResponsesFeature()
