"""Traces: the spans of service/spans.py as OpenTelemetry has them, sampled, queued and sent to an OTLP receiver.

Imported only where a setting says where spans go: OpenTelemetry takes a fifth of a second and 20 MB.
Never anything that a request waits for, and never a text unless a setting wants texts.
"""
