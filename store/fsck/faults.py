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
    "no-parent": "the turn's parent is missing",
    "no-messages": "the turn's messages are missing or unreadable",
    "damaged": "the turn's node lacks its parent, its status or its digest",
    "mistyped": "a key of the turn holds another type of value",
    "lineage": "the turn's root, depth, sums or path don't follow from its parent's",
    "no-work": "a running turn lacks what a worker needs for it",
    "no-job": "a running turn's job is missing or incomplete",
    "no-place": "a running turn neither waits in the queue nor has a lease, or it does both",
    "no-response": "the turn's response is missing or unreadable",
    "standing": "the turn's node contradicts itself, or its job, about whether it runs",
    "events": "the turn's events differ from the record, or will never be deleted",
    "kept-response": "a deleted turn still has its response, or another one has the remains of a deletion",
    "no-picture": "the turn shows a missing picture, or one picture twice",
    "picture": "a picture counts more or fewer turns than show it",
    "not-marked": "the turn's messages were erased, and its root doesn't say so",
    "length": "the turn's messages or its response have another length than recorded",
    "held": "the turn's bytes don't follow from its lengths",
    "children": "the turn counts more or fewer children than it has",
    "leaf": "the turn's place in the order of eviction doesn't follow from its children and its last use",
    "tree": "the tree's place in the order of trees doesn't follow from its last use",
    "index": "the tenant's index lacks the tree, or has it at another time than the order of trees",
    "created": "the turn's node lacks its time of creation",
    "list": "the tenant's list lacks the conversation, has it at another time, or contains a turn that is none",
    "said": "the tenant's index lacks the words by which the turn is recognised, or has another turn for them",
    "words": "the index of words counts more or fewer turns with the same words than have them",
    "stray": "a tree has a leaf that is missing or belongs to another tree",
    "stray-job": "the turn has ended or was deleted, and its job is still there",
    "stray-place": "the turn is in a queue, or among leases, logs or words, and doesn't belong there",
    "not-queued": "the archive lacks a part of a tree, and the tree doesn't wait to be archived",
    "jobs": "a tree counts more or fewer jobs than it has",
    "misnamed": "an entry among leaves, trees, leases or logs, or in a queue, names no turn",
    "endless-pin": "the turn has pins that never expire, or that count for longer than they are stored",
    "endless-note": "the note of a retry, an approval, a container or usage never expires",
    "clock": "the shard's clock is behind the last use of a turn",
    "secret": "the services' common secret is cut or changed",
    "shared-type": "a key that all trees of the shard share holds another type of value",
    "file-piece": "a file lacks some of its pieces",
    "file-record": "the archive has a file that Redis doesn't know",
    "usage": "a counter differs from the sum of the stored data",
}
"""Every word and its meaning, the gravest first; docs/operating.md says what a repair does."""

ORPHAN = "no-parent"
"""The word for a turn that may be whole itself."""

UNREADABLE = frozenset({ORPHAN, "no-messages", "damaged"})
"""The words for turns that nobody can read any more."""

LACKING = frozenset({"no-response", "no-picture", "length", "created"})
"""The words for turns that lack something of themselves (lua/judging.lua): what continues them can be read."""
