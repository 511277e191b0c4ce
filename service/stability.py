"""The mark of a setting or a route that any version may change or remove. Unmarked ones are stable.

A command or an option has `(experimental)` in its help instead: a client's command loads nothing for it. Mark an
extension of a path that is OpenAI's, a form of another project that still changes, and code that has met a stand-in
alone.
"""

from typing import Any

EXPERIMENTAL: dict[str, Any] = {"x-stability": "experimental"}
"""An extension of JSON schema, and of OpenAPI's operations."""
