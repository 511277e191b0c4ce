"""Metrics: what a process counts, how several processes count together, and how a scrape is answered.

Every metric is declared once, with its labels and its meaning (docs/metrics.md).
Never an id, a tenant's text or anything else without a bound as a label.
"""
