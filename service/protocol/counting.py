"""The body of `POST /v1/responses/input_tokens`: a create request's, in which the model may be left out."""

import msgspec

from service.protocol.decoding import decode, decoder_of
from service.protocol.wire import CreateRequest, read_create


class _Model(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"null")


_MODEL = decoder_of(_Model)
_MEMBERS = decoder_of(dict[str, msgspec.Raw])


def read_count(body: bytes, model: str, *, store: bool) -> CreateRequest:
    """Check a body as `read_create` does; without one, its model is `model`. `store` is whether this service stores.

    It asks for nothing to be stored, so whether it says so, or is to run in the background, is of no account.
    Raises ApiError.
    """
    if bytes(decode(body, _MODEL).model) == b"null":
        members: dict[str, msgspec.Raw] = decode(body, _MEMBERS)
        members["model"] = msgspec.Raw(msgspec.json.encode(model))
        body = msgspec.json.encode(members)
    return read_create(body, store=store, unstored_background=True)
