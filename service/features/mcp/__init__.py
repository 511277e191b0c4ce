"""Tools of MCP servers: who may be asked, sessions with them, their calls, and a user's approval before a call.

A server is a stranger: its words are text, each answer has a limit, and a call ends when its response does. Never
store or log a header of a server. docs/tools.md is its page.
"""
