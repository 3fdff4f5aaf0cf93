"""Traces from the request that queued a run to the turns that executed it, if a collector is configured."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from service import how_to_add
from service.agents.options import Agent
from service.settings import SettingsError, TraceSettings
from service.store.database import Database
from service.store.runs import Run
from service.store.usage import TurnMeter

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The standard variables, which count if `service.toml` names no collector."""


class Tracer:
    """The service's tracer; this one traces nothing."""

    def instrument_app(self, app: FastAPI) -> None:
        """Trace the requests to an application."""

    def instrument_database(self, database: Database) -> None:
        """Trace the statements of requests and turns."""

    def parent(self) -> str | None:
        """Return the present span as a W3C `traceparent`, which a worker continues later; None without a span."""
        return None

    def turn(self, _parent: str | None, _fields: Mapping[str, str | int]) -> AbstractContextManager[None]:
        """Trace one attempt at a turn, as a child of the span that queued it."""
        return nullcontext()

    def step(self, _name: str, /) -> AbstractContextManager[None]:
        """Trace one step of the attempt."""
        return nullcontext()

    def agent(self, _agent: Agent, _run: Run, _meter: TurnMeter, _log: Path) -> AbstractContextManager[None]:
        """Trace an agent, with its calls of models and tools (OpenTelemetry's conventions for generative AI)."""
        return nullcontext()

    def ended(self, outcome: str) -> None:
        """Note how the attempt ended."""

    def close(self) -> None:
        """Send the remaining spans, unless the collector is too slow."""


def open_tracer(settings: TraceSettings, environment: Mapping[str, str]) -> Tracer:
    """Return a tracer for the configured collector, else one that does nothing (`SettingsError`: not installed)."""
    endpoint = settings.endpoint
    if endpoint is None and not any(environment.get(name) for name in _ENDPOINTS):
        return Tracer()
    try:
        from service.observability.otlp import OtlpTracer
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        text = f"traces are configured, and {error.name} is missing; install it {how_to_add('traces')}"
        raise SettingsError(text) from error
    return OtlpTracer(endpoint, settings.sample, environment)
