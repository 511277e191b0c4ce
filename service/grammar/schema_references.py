"""What a JSON schema's `$ref`s refer to: places in the same schema, each of which is read once, under a plain name."""

from typing import Any, cast

from service.errors import invalid_value
from service.grammar.schema_values import Schema, refusal

NAME_SHOWN = 64
"""How much of a property's name a path has."""


class References:
    """The references of one schema. `waiting` are the definitions that somebody referred to and that aren't read yet:
    the name of each, what it is, and its path.
    """

    def __init__(self, root: Any, where: str) -> None:
        """Those of the schema `root`, which stands at the parameter `where`."""
        self._root = root
        self._where = where
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()
        """Those that are known to come to something that is no reference."""
        self.waiting: list[tuple[str, Any, str]] = []

    def name_of(self, reference: Any, path: str) -> str:
        """The name under which what is referred to will stand."""
        target: Any = self.target(reference, path)
        if reference not in self._names:
            self._check_end(reference, path)
            self._names[reference] = name = f"d{len(self._names)}"
            steps = [step[:NAME_SHOWN] for step in reference[1:].split("/") if step]
            self.waiting.append((name, target, ".".join([self._where, *steps])))
        return f"#/$defs/{self._names[reference]}"

    def _check_end(self, reference: str, path: str) -> None:
        """Check that a reference comes to something in the end, following each only once."""
        seen: set[str] = set()
        further: Any = reference
        while further is not None:
            target: Any = self.target(further, path)
            if further in self._ended:
                break
            if further in seen:
                raise refusal(f"{path}.$ref", "It refers to itself and to nothing else.")
            seen.add(further)
            further = cast("Schema", target).get("$ref") if isinstance(target, dict) else None
        self._ended |= seen

    def target(self, reference: Any, path: str) -> Any:
        """What a reference refers to: a place in this schema."""
        target: Any = self._root
        try:
            if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
                raise KeyError(reference)
            for step in reference.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step) if isinstance(target, list) else step]
        except (LookupError, TypeError, ValueError):
            raise invalid_value(
                f"{path}.$ref", reference, "Refer to a place in the same schema that exists, such as '#/$defs/NAME'."
            ) from None
        return target
