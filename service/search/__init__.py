"""Where the browser looks: services that search the web, pages of it, and a folder of documents.

What answers is a stranger: every answer is bounded, no redirect is followed unseen, and pages come
from where they may alone. Never a word of a request but what is searched for, and nothing of the browser's state.
"""
