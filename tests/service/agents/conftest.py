"""Rehearsals of any agent in the real sandbox, without a service."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.agents.options import Agent, AgentOptions
from service.execution.rehearsal import Rehearsal
from service.execution.sandbox import Sandbox, find
from service.settings import DataFolder, ExecutionSettings
from tests.service.agents.model_server import ModelServer
from tests.service_process import make_repository

STUB = Path(__file__).parent / "stubs" / "agent"
FILES = {"README.md": "# api\n", "src/app.py": "def answer():\n    return 42\n"}


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    sandbox = find(ExecutionSettings())
    if sandbox.program is None:
        pytest.skip(f"no sandbox: {sandbox.reason}")
    return sandbox


@pytest.fixture
def rehearse(tmp_path: Path, sandbox: Sandbox) -> Callable[..., Rehearsal]:
    """`rehearse(files=…)` makes a repository and returns a rehearsal on it."""

    def make(files: dict[str, str] | None = None, settings: ExecutionSettings | None = None) -> Rehearsal:
        folder = DataFolder(tmp_path / "data")
        folder.create()
        bare = make_repository(tmp_path / "acme" / "api", FILES | (files or {}))
        return Rehearsal(folder, settings or ExecutionSettings(), sandbox, str(bare))

    return make


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Agent]:
    """`script(source, *arguments, **options)` is an agent that runs a shell script."""

    def make(source: str, *arguments: str, **options: object) -> Agent:
        file = tmp_path / "bin" / "agent"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{source}\n", "utf-8")
        file.chmod(0o755)
        return Agent("shell", (str(file), *arguments), options=AgentOptions.model_validate(options))

    return make


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], Path]:
    """`stand_in(program)` installs a stand-in for a program as npm does, and returns its path for PATH."""

    def install(program: str) -> Path:
        package = tmp_path / "npm" / "lib" / "node_modules" / "made" / program
        package.parent.mkdir(parents=True)
        _, _, source = STUB.read_text("utf-8").partition("\n")
        # Without site packages it starts in a quarter of the time.
        package.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{source}", "utf-8")
        package.chmod(0o755)
        link = tmp_path / "npm" / "bin" / program
        link.parent.mkdir()
        link.symlink_to(f"../lib/node_modules/made/{program}")
        return link

    return install


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
