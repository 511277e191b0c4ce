"""Files that tenants upload, and that requests name by their ids: their routes, and how they come into inputs.

Never a whole file in memory where it is stored or sent, never a PDF read in this process, and no name or content in a
log. docs/api.md has its section.
"""
