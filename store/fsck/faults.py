"""Faults: everything that can be wrong with a stored conversation, in one word each, and how it is repaired.

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


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of a word, and its repair."""

    says: str
    repair: str


_TAKEN_OUT = "it is taken out"
_OR_ELSE = "it is taken out, if the archive has it; else "
_OR_LEFT = f"{_OR_ELSE}it is left"
_RESUMED = (
    "it waits again with a job made of what is left, before all that has not begun; a worker that had it has lost it"
)

MEANINGS: dict[str, Meaning] = {
    "no-node": Meaning("keys or places of a turn that doesn't exist", "they are deleted"),
    "no-parent": Meaning("the turn that it continues is missing", _TAKEN_OUT),
    "no-messages": Meaning("its messages are missing or can't be read", _TAKEN_OUT),
    "damaged": Meaning("its node lacks its parent, its status or its digest", _TAKEN_OUT),
    "mistyped": Meaning("a key of it holds another type of value", "the key is deleted, and then what that breaks"),
    "lineage": Meaning(
        "its root, depth, sums or path don't follow from its parent's",
        "they are derived anew, here and below; in a circle it is taken out",
    ),
    "no-work": Meaning(
        "it is under way, and what a worker needs for it is missing",
        f"{_RESUMED}, and the next one ends it as failed",
    ),
    "no-job": Meaning(
        "it is under way, and its job is missing or lacks something",
        _RESUMED,
    ),
    "no-place": Meaning(
        "it is under way, and neither waits in the queue nor has a lease that ends, or it does both",
        _RESUMED,
    ),
    "no-response": Meaning(
        "its response is missing or can't be read",
        f"{_OR_ELSE}it goes if nothing continues it, and is left if something does, until its id is deleted",
    ),
    "standing": Meaning(
        "its node contradicts itself, or its job, about whether it is under way",
        "one under way waits again, as above; of another the node is made to agree with the rest",
    ),
    "events": Meaning(
        "its events are not those that are recorded, or will never be deleted",
        "what is there is recorded, also where there are none; one under way waits again, as above",
    ),
    "kept-response": Meaning(
        "it was deleted, and its response is still there; or it was not, and has what remains of one that was",
        "what should not be there is deleted",
    ),
    "no-picture": Meaning("it shows a picture that is missing, or one twice", _OR_LEFT),
    "picture": Meaning(
        "a picture counts more or fewer turns than show it",
        "the number is recorded; one that no turn shows is left, unless the archive has all that the shard has",
    ),
    "not-marked": Meaning("its messages were erased, and its root doesn't say so", "it is recorded in the root"),
    "length": Meaning("its messages or its response have another length than recorded", _OR_LEFT),
    "held": Meaning("its bytes are not those that follow from its lengths", "they are recorded"),
    "children": Meaning("it counts more or fewer children than it has", "the number is recorded"),
    "leaf": Meaning("it is not where its children and its last use say in the order of eviction", "it is put there"),
    "tree": Meaning("its tree is not where its last use says in the order of trees", "it is put there"),
    "index": Meaning(
        "its tree is not among those of its tenant, or at another use than in the order of trees",
        "it is put where that order says",
    ),
    "created": Meaning(
        "its node doesn't say when it was made",
        f"{_OR_ELSE}it is recorded as when its list says, or as its last use",
    ),
    "list": Meaning(
        "it is a conversation that the list of its tenant lacks or has at another time, or is none and in that list",
        "the list is made to agree with it",
    ),
    "said": Meaning(
        "it has words by which it is recognised, and the index of its tenant lacks it, or has another turn for them",
        "the index has it, or counts it beside the other one that has these words",
    ),
    "words": Meaning(
        "the index of what was said counts more or fewer turns with the same words than have them",
        "the number is recorded; words that no turn has are deleted",
    ),
    "stray": Meaning("a tree names it among its leaves, and it is in another or missing", "it is removed"),
    "stray-job": Meaning("it has ended or was deleted, and its job is still there", "the job is deleted"),
    "stray-place": Meaning(
        "it is in a queue, or among leases, logs or what was said, and doesn't belong there", "it is removed"
    ),
    "not-queued": Meaning(
        "the archive lacks something of a tree, and the tree doesn't wait to be archived", "it waits again"
    ),
    "jobs": Meaning("a tree counts more or fewer jobs than it has", "the number is recorded"),
    "misnamed": Meaning("something among leaves, trees, leases, logs or in a queue names no turn", "it is removed"),
    "endless-pin": Meaning(
        "it has pins that never expire, or that would count for longer than they are kept",
        "they are deleted",
    ),
    "endless-note": Meaning(
        "what a call left for its retry, or is noted of approvals, containers or usage, never expires", "it expires"
    ),
    "clock": Meaning("the shard's clock is behind the last use of a turn", "it is advanced"),
    "secret": Meaning(
        "the secret that services have in common is cut or changed",
        "it is deleted, and the next one opens nothing that was sealed before",
    ),
    "shared-type": Meaning(
        "a key that all trees of the shard share holds another type of value", "the key is made anew, from the turns"
    ),
    "usage": Meaning("a counter is not the sum of what is stored", "the sum is recorded"),
}
"""Every word, the gravest first."""

ORPHAN = "no-parent"
"""The word for a turn that may be whole itself."""

UNREADABLE = frozenset({ORPHAN, "no-messages", "damaged"})
"""The words for turns that nobody can read any more."""

LACKING = frozenset({"no-response", "no-picture", "length", "created"})
"""The words for turns that lack something of themselves (lua/judging.lua): what continues them can be read."""
