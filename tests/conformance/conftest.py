"""The transcribed specification, and one service with its lab open that it is held against."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.service_process import RunningService, start_service

HERE: Final = Path(__file__).parent
SPEC: Final = HERE / "spec.yaml"
# The limit has its own tests; a campaign of thousands of requests must not meet it.
SETTINGS: Final = "[limits]\nrequests_per_minute = 100000000\n"


class Subject:
    """The service that is judged."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.root = service.base_url.removesuffix("/v1")
        self.http = httpx.Client(
            base_url=service.base_url,
            headers={"Authorization": f"Bearer {service.admin_token}"},
            timeout=60,
            trust_env=False,
        )
        self._lab = httpx.Client(
            base_url=f"{self.root}/_lab",
            headers={"Authorization": f"Bearer {service.lab_token}"},
            timeout=60,
            trust_env=False,
        )

    def order(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Order something of the lab."""
        answer = self._lab.post(path, json=document)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def runs(self, **params: Any) -> httpx.Response:
        """Ask for one page of the list."""
        given = {key: value for key, value in params.items() if value is not None}
        return self.http.get("/external/runs", params=given)

    def campaign(self, folder: Path, document: dict[str, Any], *options: str) -> dict[str, Any]:
        """Let schemathesis try an OpenAPI document on the service; return its report."""
        spec, report = folder / "spec.json", folder / "report.json"
        spec.write_text(json.dumps(document), "utf-8")
        ended = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                *("run", str(spec), "--url", self.service.base_url, "--continue-on-failure", "--no-color"),
                *("--header", f"Authorization: Bearer {self.service.admin_token}"),
                *("--generation-database", "none", "--warnings", "off", "--request-timeout", "60"),
                *("--report", "json", "--report-json-path", str(report), *options),
            ],
            cwd=folder,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert report.exists(), ended.stdout + ended.stderr
        return dict(json.loads(report.read_text("utf-8"))) | {"output": ended.stdout}


@pytest.fixture(scope="session")
def specification() -> dict[str, Any]:
    """The specification as it was transcribed."""
    return dict(yaml.safe_load(SPEC.read_text("utf-8")))


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    # Without a worker: what is judged is the contract, and thousands of accepted runs would be executed beside it.
    arguments = ["--lab", "--no-worker"]
    service = start_service(tmp_path_factory.mktemp("conformance"), settings=SETTINGS, arguments=arguments)
    yield Subject(service)
    service.stop()
