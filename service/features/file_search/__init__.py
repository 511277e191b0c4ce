"""A search of files that an MCP server does: `file_search` items from the tool that OpenAI's guide describes.

Never a store of vectors of our own. docs/tools.md is its page.
"""
