"""OpenTelemetry: spans, sent to a collector over OTLP/HTTP; needs the extra `traces`."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service import DISTRIBUTION
from service.agents.options import Agent, PresetName
from service.agents.steps import steps_of
from service.clock import parse_rfc3339
from service.observability.traces import Tracer
from service.store.database import Database
from service.store.runs import Run
from service.store.usage import ModelUse, TurnMeter

_PROVIDERS: Final = {"gemini": "gcp.gemini", "vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock"}
"""Providers that the conventions call otherwise."""
_TOOLS: Final = frozenset({"ran", "edited", "used"})
"""Steps that are calls of tools; their details stay in the log."""
_MAX_LOG: Final = 16 << 20
_UNTRACED: Final = "/livez$,/readyz$,/metrics$"
_PARENT: Final = "traceparent"
_FLUSH_S: Final = 5.0
"""How long the end of the process waits for the collector."""


class OtlpTracer(Tracer):
    """Sends traces to a collector."""

    def __init__(self, endpoint: str | None, sample: float, environment: Mapping[str, str]) -> None:
        # With an endpoint of None the exporter reads the standard variables; headers come from them in any case.
        exporter = OTLPSpanExporter(endpoint=None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces")
        name = environment.get("OTEL_SERVICE_NAME", "runwarden")
        resource = Resource.create({"service.name": name, "service.version": metadata.version(DISTRIBUTION)})
        # Not set as the global provider: the framework would trace every request a second time.
        self._provider = TracerProvider(resource=resource, sampler=_NoOrphans(TraceIdRatioBased(sample)))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(DISTRIBUTION)
        self._propagator = TraceContextTextMapPropagator()

    def instrument_app(self, app: FastAPI) -> None:
        FastAPIInstrumentor.instrument_app(
            app, tracer_provider=self._provider, excluded_urls=_UNTRACED, exclude_spans=["receive", "send"]
        )

    def instrument_database(self, database: Database) -> None:
        """Trace the statements of requests and turns, with placeholders in place of values."""
        # It declares support up to SQLAlchemy 2.0 only, but 2.1 has the same events.
        SQLAlchemyInstrumentor().instrument(engine=database.engine, tracer_provider=self._provider, skip_dep_check=True)

    def parent(self) -> str | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get(_PARENT)

    def turn(self, parent: str | None, fields: Mapping[str, str | int]) -> AbstractContextManager[Any]:
        context = self._propagator.extract({} if parent is None else {_PARENT: parent}, Context())
        attributes = {f"runwarden.{key}": value for key, value in fields.items()}
        return self.step("turn", context=context, kind=SpanKind.CONSUMER, attributes=attributes)

    @contextmanager
    def agent(self, agent: Agent, run: Run, meter: TurnMeter, log: Path) -> Iterator[None]:
        model = agent.options.model
        known = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent.name,
            "gen_ai.conversation.id": run.id,
            "gen_ai.provider.name": None if model is None else _PROVIDERS.get(model.provider, model.provider),
            "gen_ai.request.model": None if model is None else model.name,
        }
        attributes = {name: value for name, value in known.items() if value}
        with self.step(f"invoke_agent {agent.name}", attributes=attributes) as span:
            # The proxy's threads know no present span.
            inside = trace.set_span_in_context(span)
            meter.trace = partial(self._call_of_model, inside)
            begin = log.stat().st_size
            try:
                yield
            finally:
                if agent.options.preset is not None and span.is_recording():
                    self._calls_of_tools(inside, agent.options.preset, log, begin)

    def _call_of_model(self, inside: Context, call: ModelUse) -> None:
        used, began = call.usage, int(call.asked_at * 1e9) or None
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(call.provider, call.provider),
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": used.input + used.cached + used.cache_write,
            "gen_ai.usage.cache_read.input_tokens": used.cached,
            "gen_ai.usage.cache_creation.input_tokens": used.cache_write,
            "gen_ai.usage.output_tokens": used.output,
        }
        name, kind = f"chat {call.model}", SpanKind.CLIENT
        self._tracer.start_span(name, inside, kind, attributes=attributes, start_time=began).end()

    def _calls_of_tools(self, inside: Context, preset: PresetName, log: Path, begin: int) -> None:
        """Trace the calls that the agent's program printed, as far as their times are known."""
        with log.open("rb") as file:
            file.seek(begin)
            steps = steps_of(preset, file.read(_MAX_LOG))
        results = {step.call: step for step in steps if step.kind == "result" and step.call}
        for step in steps:
            if step.kind not in _TOOLS:
                continue
            result = results.get(step.call or "")
            began, ended = (
                None if part is None or part.at is None else parse_rfc3339(part.at, round_up=False) * 1000
                for part in (step, result)
            )
            attributes: dict[str, str] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.kind}
            attributes |= {"gen_ai.tool.call.id": step.call} if step.call else {}
            name, begin_ns = f"execute_tool {step.kind}", began or ended
            span = self._tracer.start_span(name, inside, attributes=attributes, start_time=begin_ns)
            if step.failed or (result is not None and result.failed):
                span.set_status(Status(StatusCode.ERROR))
            span.end(ended or began)

    def ended(self, outcome: str) -> None:
        span = trace.get_current_span()
        span.set_attribute("runwarden.outcome", outcome)
        if outcome == "failed":
            span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_FLUSH_S)

    def step(self, name: str, /, **options: Any) -> AbstractContextManager[Any]:
        # A failure's text is left out: it may quote a secret that only the log masks.
        options |= {"record_exception": False, "set_status_on_exception": False}
        return self._tracer.start_as_current_span(name, **options)


class _NoOrphans(ParentBased):
    """Drops the spans of statements outside of requests and turns: workers poll the database all the time."""

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        *others: Any,
        **more: Any,
    ) -> SamplingResult:
        """Drop a client span without a parent; the inner sampler decides on all others."""
        if kind is SpanKind.CLIENT and not trace.get_current_span(parent_context).get_span_context().is_valid:
            return SamplingResult(Decision.DROP)
        return super().should_sample(parent_context, trace_id, name, kind, *others, **more)
