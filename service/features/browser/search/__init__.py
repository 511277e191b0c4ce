"""The browser's sources: services that search the web, pages of it, and a folder of documents.

Answers come from strangers: every answer is bounded, no redirect is followed unseen, and pages come
only from allowed places. Never send a word of a request but the query, and nothing of the browser's state.
"""
