"""Tools that the service runs: servers that speak MCP, with bounds on their reach and on their answers.

A tool is a stranger: its words are text and nothing more, every answer has its bounds, and a call ends when its
response does. Never a word of a request, and nothing of the store: the caller knows whose call it is.
"""
