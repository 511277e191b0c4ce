"""Traces in a process: a tracer and the spans of a response, where the settings have a URL for them."""

from service.build import this_build
from service.features.traces.settings import TraceSettings
from service.process import Feature, Parts
from service.settings.sources import environment


class TracesFeature(Feature):
    """Traces."""

    def compose(self, parts: Parts) -> None:
        settings = TraceSettings.of(parts.settings)
        if not settings.traces_url:
            return
        from service.features.traces.traced import TRACING
        from service.features.traces.tracing import TEXT_BYTES, TraceBounds, open_tracer

        bounds = TraceBounds(settings.traces_ratio, TEXT_BYTES if settings.traces_contents else 0)
        headers = settings.traces_headers.get_secret_value()
        name = environment(["OTEL_SERVICE_NAME"]).get("OTEL_SERVICE_NAME") or "harmonium"
        parts.tracer = open_tracer(settings.traces_url, headers, bounds, name=name, version=this_build().version)
        parts.tracing = TRACING


FEATURE = TracesFeature()
