"""The events of a TensorRT-LLM server's stream. Pure."""

from service.engine.port import EngineError
from service.engine.servers.answer import Answer
from service.engine.tensorrt import wire


class TensorrtAnswer(Answer):
    """A stream."""

    name = wire.NAME

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        for choice in event.choices:
            if self.finished:
                return
            if choice.token_ids is None:
                raise EngineError("the TensorRT-LLM server sent an event without token ids; is it recent?")
            self._tokens += choice.token_ids
            if choice.finish_reason is not None:
                self._finish_as(_ENDS.get(choice.finish_reason, choice.finish_reason))


_ENDS = {"cancelled": "abort"}
