"""OpenAI's admin API: what an administrator's key opens, and no other. OpenAI's SDK administers projects here as it is.

They are not in `/openapi.json`, which is for all services: there are such routes where there are projects in the store.
Source of the routes and shapes: openai 3.54's `resources/admin` and `types/admin`.
"""
