"""Faults: everything that can be wrong with a stored conversation, in one word each.

The words come from lua/judging.lua and check.py. A fault names ids and numbers, never what anybody said.
"""

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong in a shard, with a turn where it is one turn's; `what` is one of MEANINGS."""

    shard: int
    what: str
    tenant: str | None = None
    id: str | None = None
    detail: str = ""


MEANINGS = {
    "no-node": "keys or places of a turn that doesn't exist",
    "no-parent": "the turn that it continues is missing",
    "no-messages": "its messages are missing or can't be read",
    "damaged": "its node lacks its parent, its status or its digest",
    "mistyped": "a key of it holds another type of value",
    "lineage": "its root, depth, sums or path don't follow from its parent's",
    "no-work": "it is under way, and what a worker needs for it is missing",
    "no-job": "it is under way, and its job is missing or lacks something",
    "no-place": "it is under way, and neither waits in the queue nor has a lease that ends, or it does both",
    "no-response": "its response is missing or can't be read",
    "standing": "its node contradicts itself, or its job, about whether it is under way",
    "events": "its events are not those that are recorded, or will never be deleted",
    "kept-response": (
        "it was deleted, and its response is still there; or it was not, and has what remains of one that was"
    ),
    "no-picture": "it shows a picture that is missing, or one twice",
    "picture": "a picture counts more or fewer turns than show it",
    "not-marked": "its messages were erased, and its root doesn't say so",
    "length": "its messages or its response have another length than recorded",
    "held": "its bytes are not those that follow from its lengths",
    "children": "it counts more or fewer children than it has",
    "leaf": "it is not where its children and its last use say in the order of eviction",
    "tree": "its tree is not where its last use says in the order of trees",
    "index": "its tree is not among those of its tenant, or at another use than in the order of trees",
    "created": "its node doesn't say when it was made",
    "list": (
        "it is a conversation that the list of its tenant lacks or has at another time, or is none and in that list"
    ),
    "said": (
        "it has words by which it is recognised, and the index of its tenant lacks it, or has another turn for them"
    ),
    "words": "the index of what was said counts more or fewer turns with the same words than have them",
    "stray": "a tree names it among its leaves, and it is in another or missing",
    "stray-job": "it has ended or was deleted, and its job is still there",
    "stray-place": "it is in a queue, or among leases, logs or what was said, and doesn't belong there",
    "not-queued": "the archive lacks something of a tree, and the tree doesn't wait to be archived",
    "jobs": "a tree counts more or fewer jobs than it has",
    "misnamed": "something among leaves, trees, leases, logs or in a queue names no turn",
    "endless-pin": "it has pins that never expire, or that would count for longer than they are kept",
    "endless-note": "what a call left for its retry, or is noted of approvals, containers or usage, never expires",
    "clock": "the shard's clock is behind the last use of a turn",
    "secret": "the secret that services have in common is cut or changed",
    "shared-type": "a key that all trees of the shard share holds another type of value",
    "file-piece": "a file lacks some of its pieces",
    "file-record": "the archive has a file that Redis doesn't know",
    "usage": "a counter is not the sum of what is stored",
}
"""Every word and its meaning, the gravest first; docs/operating.md says what a repair does."""

ORPHAN = "no-parent"
"""The word for a turn that may be whole itself."""

UNREADABLE = frozenset({ORPHAN, "no-messages", "damaged"})
"""The words for turns that nobody can read any more."""

LACKING = frozenset({"no-response", "no-picture", "length", "created"})
"""The words for turns that lack something of themselves (lua/judging.lua): what continues them can be read."""
