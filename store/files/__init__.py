"""Files of tenants: what they uploaded for requests to name, in the archive, or in Redis where there is none.

Never a whole file in memory, and never a name or a content in a log.
"""
