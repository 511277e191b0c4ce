"""Webhooks: whoever runs the service is told by an HTTP request how each background response ended.

Delivery and the rules of where a request may be sent are one subject, which nothing else needs.
Never the text of a response: a webhook names it, and its receiver asks for it.
"""
