"""Tools that gpt-oss was trained with, Python and a browser: their declarations, and their words in the prompt.

The model knows them by the system message, in the words of its training: those of openai-harmony, except where they
would not be true. The settings say whether this service runs one at all (tools/toolbox.py).
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from service.api.tools.callee import Callee, Hosted, HostedKind

PYTHON: HostedKind = "python"
BROWSER: HostedKind = "browser"

DECLARED_BY: Mapping[str, HostedKind] = MappingProxyType(
    {
        "code_interpreter": PYTHON,
        "web_search": BROWSER,
        "web_search_2025_08_26": BROWSER,
        "web_search_preview": BROWSER,
        "web_search_preview_2025_03_11": BROWSER,
    }
)
"""The types of tools that declare one of them."""

CODE_TYPE = "code"
"""The content type of their calls, as the model writes it: a plain word, without the mark of other types."""

_TOOLS: Mapping[HostedKind, tuple[Callee, ...]] = MappingProxyType(
    {
        PYTHON: (Callee("python", "custom"),),
        BROWSER: tuple(Callee(name, namespace=BROWSER) for name in ("search", "open", "find")),
    }
)

_BROWSER_SECTION = """## browser

// Tool for browsing.
// The `cursor` appears in brackets before each browsing display: `[{cursor}]`.
// Cite information from the tool using the following format:
// `【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.
// Do not quote more than 10 words directly from the tool output.
// sources=web (default: web)
namespace browser {

// Searches for information related to `query` and displays `topn` results.
type search = (_: {
query: string,
topn?: number, // default: 10
source?: string,
}) => any;

// Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing `num_lines` lines.
// Valid link ids are displayed with the formatting: `【{id}†.*】`.
// If `cursor` is not provided, the most recent page is implied.
// If `id` is a string, it is treated as a fully qualified URL associated with `source`.
// If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered on the most \
relevant passage, if available.
// Use this function without `id` to scroll to a new location of an opened page.
type open = (_: {
id?: number | string, // default: -1
cursor?: number, // default: -1
loc?: number, // default: -1
num_lines?: number, // default: -1
view_source?: boolean, // default: false
source?: string,
}) => any;

// Finds exact matches of `pattern` in the current page, or the page given by `cursor`.
type find = (_: {
pattern: string,
cursor?: number, // default: -1
}) => any;

} // namespace browser"""

_PYTHON_SECTION = """## python

Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This tool \
should be used for internal reasoning, but not for code that is intended to be visible to the user (e.g. when creating \
plots, tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook \
environment. python will respond with the output of the execution or time out after %s seconds. The drive at '%s' can \
be used to save and persist user files. Internet access for this session is disabled."""

Reader = Callable[[msgspec.Raw, str], str]
"""Reads the `options` that a request gives a tool, at a place of the request. Raises InvalidRequest."""


class Builtin(msgspec.Struct, frozen=True):
    """One of them that this service runs: its `section` of the system message, and the reader of its declaration."""

    kind: HostedKind
    section: str
    read: Reader


def python(read: Reader, *, seconds: float, drive: str) -> Builtin:
    """Python, whose code runs at most `seconds` and keeps files at `drive`."""
    return Builtin(PYTHON, _PYTHON_SECTION % (f"{seconds:.1f}", drive), read)


def browser(read: Reader) -> Builtin:
    """The browser."""
    return Builtin(BROWSER, _BROWSER_SECTION, read)


def callees(kind: HostedKind, options: str) -> tuple[Callee, ...]:
    """The tools of one of them, as the model calls them. A call that comes again is answered as before."""
    return tuple(
        msgspec.structs.replace(tool, hosted=Hosted(tool.namespace or "", tool.name, True, kind, options))
        for tool in _TOOLS[kind]
    )


def section(declared: Iterable[Builtin]) -> str:
    """The section of the system message about the tools that a request declares: the browser comes first."""
    return "\n\n".join(each.section for each in sorted(declared, key=lambda each: each.kind))
