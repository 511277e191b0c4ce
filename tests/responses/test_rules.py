"""Rules in a queued job: what another release wrote is read as it was meant, whatever the fields are called here."""

from base64 import b64decode

import msgspec

from service.api.tools.callee import Callee
from service.responses.output.rules import AfterCompaction, Rules
from service.responses.plan import decode
from store.turn import StoredMessage

QUEUED = b64decode(
    "AgEotS/9YOkEJRsAdnOePFBt0wFQlIVYWEE8T3ThK+y/myg9U8lHMtJ1AnryZUoaUspVQ2n3TlJOR4gIwwo/8BNErD6gMYsUANeOHZYAiACD"
    "APHafKz96W3PZ7PfPXycii2t+DyfxuwaGN27Z8kd4sIgzwrcFYjLv4UsJ2aQnVt+GJETdNcGqkR4MEACldjw5twDpXAwIicZfwOdcDDCPX+b"
    "5cUP0hxyJf6UsdcHBgu6J691DwRBEgiCKiAIAgBJBkAgIPLyii05IY07vnM+D7lXcqhtwGCBggQIDhiwoEzSuROYaK5DQzNqxLP/LZumx+9t"
    "r/y5KikzFy/YNEGCpP5i/GnyGR0Gt9TovQkldRgdVEk1UnduK7ZK6vP3XSPKAgtJf6fGv9xMI21OI2WHUTq3SvqMKVBRMSYqRrAvpdngDM7K"
    "4wBlYmBiMaFQPEA2NJht/4bi+Lc+8QVb9rEcl3fQVdV64sVt4h4nL60Oj1saDhrufHkyFEkpkk4yNn7Uumsq6TI4+zXSf3MrbvoTM4fR3OCM"
    "bVXYUs/tc5v4+ckrMuhiN7O1Pi9cmZpd5R5yc9PluVrnjhmMpPvb9vnSKHN555FqxtAoIynLyyvm6lh9Br9GmUvvdU3XSK/pGl8dq4oVI6kF"
    "HYy+3HKSlAIWkv6UH9DlXUfX0oNCQiLDA0VR1DtbGHIkLGPHQuu1wMj57O4GaOy6l3VEWNA924+QC4xX70Ung0NDE3+uphPS+C07p6JDBtPR"
    "bHG4HImnKuAgGo0t8b3tNG7n4Yj4QA6PFdJYym1LJ4PpeMgPI+t8mK10jyu+T8Zp0FU0FQdfCzUXNpy5k8H5zd5MyGAkBBDxi99tPgJEmn0G"
    "X6gBoWEIGTJUIyNDSYY1IAJinKIyDxKg9VDJSqRSbP9nMzWZSg8M+JvasRUYue2Akzo20YTCCz33eHuXSBlEviEtpuhey7O3sETtZkI4rf5s"
    "/TA04SZWSBrKXsLvigBisF7sAXYsSrot1yWz4myN2ffUJ24bM5VQIMo3PqP+g9MJGdM3pRLF6FPX11IiN7+gWUpzVwkmXzj+7jQaQuknT7LG"
    "qivUaKjQokMcyvaYcmPhM7Ks0WUnITJUuriY4HpRKCBcaVtpQAOUwZ4TtlKz+fn7RnAE2co5Sww0tOBjOAVAf7he9bWOCg=="
)
"""A job with these rules, as a release queued it whose fields had other names."""

RULES = Rules(
    callees=(Callee("f", "custom", content="{}", wrapped=True), Callee("g", namespace="n")),
    choice="required",
    allowed=frozenset({"functions.f"}),
    parallel=3,
    answer="{}",
    top_logprobs=2,
    sealed=True,
    summary="auto",
    stop=("x",),
    harmony=True,
    kept_messages=(StoredMessage("user", b"aaaa"),),
    after_compaction=AfterCompaction(3, (StoredMessage("user", b"bbbb"),), 1000),
)
FIELDS = [
    *("callees", "choice", "allowed", "parallel", "answer", "top_logprobs", "sealed", "summary", "stop", "harmony"),
    *("compacting", "carried", "onward", "listed", "hosted_calls", "context_tokens", "include", "answers"),
    *("displays", "chat"),
]


async def test_rules_that_another_release_queued_are_read_as_they_were_meant() -> None:
    assert (await decode(QUEUED)).rules == RULES


def test_a_release_that_queued_these_names_reads_them_again() -> None:
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(RULES))

    assert list(written) == FIELDS
    assert list(written["onward"]) == ["opening", "newest", "context_tokens"]
