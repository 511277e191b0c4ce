"""Tools, tool_choice and formats of a request: as they are called, shown to the model, and echoed.

Pure. A tool of the caller is a `Callee`.
Never running a tool: the caller does that.
"""
