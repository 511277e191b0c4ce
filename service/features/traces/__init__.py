"""Traces of requests, jobs, generations and calls, sent by OTLP with the names of OpenTelemetry.

Never text of users unless the settings say so. docs/operating.md is its page.
"""
