"""Webhooks: an HTTP request to a receiver of the operator's for each background response that ended.

Delivery and the rules of where a request may be sent are one subject, which nothing else needs.
Never the text of a response: a webhook names it, and its receiver retrieves it.
"""
