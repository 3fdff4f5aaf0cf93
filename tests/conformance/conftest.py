"""The transcribed specification, and a service with an open lab to check against it."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from click.testing import CliRunner

from tests.program import FORKS
from tests.service.conftest import Laboratory
from tests.service_process import RunningService, start_service

SPEC: Final = Path(__file__).parent / "spec.yaml"
# The limits have their own tests, and a campaign of thousands of requests must not run into them.
SETTINGS: Final = "[limits]\nrequests_per_minute = 100000000\nactive_runs = 100000\n"


class Subject(Laboratory):
    """The service under test."""

    def __init__(self, service: RunningService, judge: ProcessPoolExecutor) -> None:
        super().__init__(service)
        self.http = self.api.http
        self._judge = judge

    def description(self) -> dict[str, Any]:
        """The OpenAPI document that the service publishes."""
        return dict(self.http.get(self.service.base_url.removesuffix("v1") + "openapi.json").json())

    def order(self, path: str, document: dict[str, Any]) -> None:
        answer = self.post(path, document)
        assert answer.is_success, answer.text

    def runs(self, **params: Any) -> httpx.Response:
        query = {key: value for key, value in params.items() if value is not None}
        return self.http.get("/external/runs", params=query)

    def campaign(
        self, folder: Path, document: dict[str, Any], examples: int, seed: int, *options: str
    ) -> dict[str, Any]:
        """Let schemathesis try an OpenAPI document on the service; return its report."""
        spec, report = folder / "spec.json", folder / "report.json"
        spec.write_text(json.dumps(document), "utf-8")
        arguments = [
            *("run", str(spec), "--url", self.service.base_url, "--continue-on-failure", "--no-color"),
            *("--header", f"Authorization: Bearer {self.service.admin_token}"),
            *("--generation-database", "none", "--warnings", "off", "--request-timeout", "60"),
            *("--report", "json", "--report-json-path", str(report)),
            *("--max-examples", str(examples), "--seed", str(seed)),
            # Acceptance can only be checked if the schema knows which objects exist.
            *(options or ("--exclude-checks", "positive_data_acceptance")),
        ]
        output = self._judge.submit(_schemathesis, folder, arguments).result()
        assert report.exists(), output
        return dict(json.loads(report.read_text("utf-8"))) | {"output": output}


def _schemathesis(folder: Path, arguments: list[str]) -> str:
    """Run schemathesis in the service's process, since it changes what Hypothesis prints; return its output."""
    from schemathesis.cli import schemathesis

    with chdir(folder):
        return CliRunner().invoke(schemathesis, arguments, env={"SCHEMATHESIS_HOOKS": "tests.conformance.hooks"}).output


@pytest.fixture(scope="session")
def specification() -> dict[str, Any]:
    return dict(yaml.safe_load(SPEC.read_text("utf-8")))


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    # No worker: the subject is the contract, and thousands of accepted runs would be executed as well.
    arguments = ["--lab", "--no-worker"]
    service = start_service(tmp_path_factory.mktemp("conformance"), settings=SETTINGS, arguments=arguments)
    forgejo = ("--platform", "forgejo", "--host", "forgejo.example", "--group", "acme")
    service.admin("host", "connect", "--org", "acme", *forgejo, "--probe", "git", "--clone-url", "/srv/{path}.git")
    # One process for all campaigns, since its imports take two seconds.
    with ProcessPoolExecutor(1, FORKS) as judge:
        yield Subject(service, judge)
    service.stop()
