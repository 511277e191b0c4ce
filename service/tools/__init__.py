"""Tools that the service runs: servers that speak MCP, with what they may reach and how much they may say.

A tool is a stranger: nothing that it says is taken for more than text, every answer has its bounds, and a call ends
when its response does. Never a word of a request, and nothing of the store: whose call it is, its caller knows.
"""
