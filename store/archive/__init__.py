"""The archive's port: five verbs over bytes by key, which are SQLite's, an object store's or Postgres' to carry out.

An archive outlives Redis, and knows nothing of it: no turns, no tenants, no service. The rooms above decide what the
bytes are.
"""
