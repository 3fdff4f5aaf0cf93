"""Traces: one tree from the request that queued a run to the steps of its turn, at a real OTLP/HTTP collector."""

import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from service.observability.traces import Tracer, open_tracer
from service.settings import SettingsError, TraceSettings
from tests.lab import Received, Respond, Server, free_port
from tests.service.conftest import UNBOXED, Make
from tests.waiting import eventually

QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100"}


class Collector(Server):
    """Takes spans as a collector does."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: dict[str, Span] = {}
        self.resource: dict[str, str] = {}

    def answer(self, request: Received) -> Respond:
        assert request.target == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            self.resource = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans |= {span.span_id.hex(): span for span in scope.spans}
        return Respond(200, b"")

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans.values()) if span.name == name]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


def test_a_turn_is_below_the_request_that_queued_it(start: Make, collector: Collector) -> None:
    """With its steps and what they ask of the database; idle workers make no spans, and no token is in any.

    A collector that is away harms nothing; the standard variable names the collector as well.
    """
    environment = QUICK | {"OTEL_EXPORTER_OTLP_HEADERS": "X-Tenant=us"}
    api = start(settings=f'{UNBOXED}[traces]\nendpoint = "{collector.origin}"\n', environment=environment)
    run_id = api.start("note")
    api.ended(run_id)
    api.ended(api.start("fail"))
    eventually(lambda: len(collector.named("turn")) == 2, "both turns are traced")
    assert api.service.stop() == 0
    turn, failed = collector.named("turn")
    fields = {one.key: one.value.string_value or one.value.int_value for one in turn.attributes}
    steps: dict[bytes, list[str]] = defaultdict(list)
    for span in sorted(collector.spans.values(), key=lambda span: span.start_time_unix_nano):
        steps[span.parent_span_id].append(span.name)

    assert collector.spans[turn.parent_span_id.hex()].name == "POST /v1/external/agents/{name}/runs"
    named = ["fetch", "check out", "invoke_agent scribe", "commit", "push"]
    assert [step for step in steps[turn.span_id] if step in named] == named
    assert fields["runwarden.run_id"] == run_id
    assert (fields["runwarden.turn"], fields["runwarden.attempt"], fields["runwarden.outcome"]) == (1, 1, "completed")
    assert (turn.status.code, failed.status.code) == (0, 2)
    roots = {span.name for span in collector.spans.values() if not span.parent_span_id}
    asked = {"GET /v1/external/runs", "GET /v1/external/runs/{run_id}"}
    assert roots <= {"POST /v1/external/agents/{name}/runs", *asked}
    assert {"SELECT", "INSERT"} <= {name.split()[0] for name in steps[turn.parent_span_id]}
    assert " ERROR " not in api.service.log
    assert api.token not in str(collector.spans)
    assert collector.resource["service.name"] == "runwarden"
    assert {one.headers["x-tenant"] for one in collector.requests} == {"us"}

    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    (api.service.data_dir / "service.toml").write_text(UNBOXED)
    api.service.environment = QUICK | away
    api.service.restart()
    assert api.ended(api.start("note"))["status"] == "completed"
    assert api.service.stop() == 0


def test_without_a_collector_nothing_is_traced_and_without_the_extra_the_cure_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where a collector is configured are the libraries needed."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "service.observability.otlp", raising=False)

    assert type(open_tracer(TraceSettings(), {})) is Tracer
    with pytest.raises(SettingsError, match=r"pip install '\.\[service,traces\]'"):
        open_tracer(TraceSettings(endpoint="http://127.0.0.1:4318"), {})
