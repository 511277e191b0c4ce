"""The ids that OpenTelemetry gets of what clients have told, whose own ids are of another form.

The same id always becomes the same one, and that of another tenant never: nobody writes into the traces of others.
"""

from hashlib import blake2b

TRACE_BYTES, SPAN_BYTES = 16, 8


def trace_id(tenant: str, id: str) -> int:
    """The 128 bits of a trace."""
    return _hashed(tenant, id, TRACE_BYTES)


def span_id(tenant: str, id: str) -> int:
    """The 64 bits of a span."""
    return _hashed(tenant, id, SPAN_BYTES)


def _hashed(tenant: str, id: str, size: int) -> int:
    digest = blake2b(id.encode(), key=tenant.encode()[:64], digest_size=size).digest()
    return int.from_bytes(digest) or 1  # 0 is no id
