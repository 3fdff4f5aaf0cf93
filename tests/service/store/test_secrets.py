"""Values that must not leak, and values from outside that must not harm."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection

from service.api.app import ask_database
from service.clock import now_micros
from service.secrets import MASK, MaskedStream, Secrets, of_environment
from service.settings import Settings
from service.store.database import Database
from tests.service.conftest import MODEL_KEY as KEY
from tests.service.conftest import Api, Make, Own, placed
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository, put_hook
from tests.waiting import until

TELLTALE = """
import base64, json, os, pathlib, sys
key = os.environ["MODEL_KEY"]
how = json.load(sys.stdin)["inputs"]["how"]
print("plain", key, "json", json.dumps(key), "base64", base64.b64encode(key.encode()).decode(), flush=True)
for letter in key: print(letter, end="", flush=True)
print()
result = {"summary": f"used {key}", "commit_message": f"with {key}"}
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps(result))
pathlib.Path("notes.txt").write_text("nothing")
if how == "file": pathlib.Path("notes.txt").write_bytes(b"\\0" * 3_000_000 + key.encode())
if how == "name": pathlib.Path(key.replace("/", "")).write_text("x")
if how == "link": pathlib.Path("link").symlink_to(key)
if how == "fail": sys.exit(f"failed with {key}")
"""


@pytest.fixture(scope="module")
def telltale(equipped: Any, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """A service whose agent gets a key and prints it in several ways."""
    api = Api(equipped)
    api.add_agent(tmp_path_factory.mktemp("telltale"), "telltale", TELLTALE, "--env", "MODEL_KEY")
    return api


def kept(api: Api, secret: str) -> bytes:
    """Return the files under the data folder that contain a secret."""
    found = subprocess.run(["grep", "-rlF", secret, str(api.service.data_dir)], capture_output=True, check=False)
    return found.stdout


@pytest.mark.parametrize("how", ["none", "file", "link", "fail"])
def test_an_agents_key_is_never_stored_or_pushed(telltale: Api, how: str) -> None:
    """Log, summary, message and diff are masked; a change with the key is refused with its name."""
    shown = telltale.worked(telltale.begin("telltale", how=how))
    turn = telltale.service.admin("run", shown["run_id"], "--log")["turns"][0]
    repository = telltale.service.repositories["acme/api"]
    branches = git("branch", "--format=%(refname:short)", cwd=repository).split()

    assert shown["outcome"] == ("completed" if how == "none" else "failed"), turn
    assert KEY not in str(turn)
    assert f"plain {MASK} json" in turn["log"]
    assert kept(telltale, KEY) == b""
    assert KEY not in telltale.service.log
    if how == "none":
        assert turn["summary"] == f"used {MASK}"
        assert git("log", "-1", "--format=%s", shown["branch"], cwd=repository) == f"with {MASK}"
    else:
        assert shown["branch"] not in branches
    assert shown["files"] == (None if how in {"file", "link"} else 1), "what holds it is not kept as a patch either"
    if how in {"file", "link"}:
        assert "MODEL_KEY" in turn["failure"]
        assert "what the agent changed is not kept: the change holds the value of MODEL_KEY" in turn["log"]


def test_a_password_in_an_address_is_never_shown(tenant: Make, tmp_path: Path) -> None:
    """Git uses it, but its arguments, the log and the lists do not contain it."""
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    with contextlib.closing(GitHttpHost(tmp_path, "pa55/word")) as there:
        url = f"{there.origin}/acme/api.git".replace("http://", "http://x-access-token:pa55%2Fword@")
        api = tenant(repositories=[placed(url)])
        turn = api.work("write it", "scribe")
        shown = api.service.admin("run", turn["run_id"], "--log")
        listed = api.service.admin("repository", "list", "--org", api.organization["slug"])

    assert turn["outcome"] == "completed", shown
    for text in (str(shown), str(listed), api.service.log, str(api.organization["repositories"])):
        assert "pa55" not in text
    assert f"{there.origin}/acme/api.git" in str(shown)


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(0, 11))
def test_a_stream_is_masked_at_any_cut(pieces: list[bytes], at: int) -> None:
    """The output equals masking the whole text, and has no secret."""
    secrets = Secrets({"A": "secret-value", "B": "secret"})
    pieces.insert(min(at, len(pieces)), b"secret-va")
    pieces.insert(min(at + 1, len(pieces)), b"lue and secret")
    out: list[bytes] = []
    stream = MaskedStream(secrets, out.append)
    for piece in pieces:
        stream.write(piece)
    stream.end()

    assert b"secret" not in b"".join(out)
    assert b"".join(out) == b"".join(pieces).replace(b"secret-value", b"[masked]").replace(b"secret", b"[masked]")


def test_short_and_harmless_values_are_not_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masking `main` or an address would make every log unreadable."""
    for name, value in {"MODEL": "opus", "BASE_URL": "https://api.example", "API_KEY": "abcdefgh"}.items():
        monkeypatch.setenv(name, value)
    found = of_environment(["MODEL", "BASE_URL", "API_KEY", "NOT_SET", None])

    assert found == {"MODEL": "opus", "API_KEY": "abcdefgh"}
    assert Secrets(found).mask("opus abcdefgh https://api.example") == f"opus {MASK} https://api.example"


REFUSAL = "printf '\\033]0;owned\\007refused\\n2026-01-01 ERROR forged line\\n' >&2; exit 1"


def test_a_code_hosts_words_are_escaped(own: Own) -> None:
    """A default branch of any bytes fails nothing; a refused push is one log line without escape sequences."""
    api, repository = own()
    name = b"refs/heads/\xff\xfe"
    subprocess.run(["git", "update-ref", name, "main"], cwd=repository, check=True)
    (repository / "HEAD").write_bytes(b"ref: " + name + b"\n")
    odd = api.start("write", branch_name="other")
    assert api.ended(odd)["status"] == "completed", api.log(odd)
    put_hook(repository, "pre-receive", REFUSAL)
    run_id = api.start("write", branch_name="refused")
    assert api.ended(run_id)["status"] == "failed"
    logged = api.service.log

    assert "forged line" in logged
    assert not {"\x1b", "\x07"} & set(logged)
    assert not any(line.startswith("2026-01-01 ERROR") for line in logged.splitlines())
    assert "\x1b" not in api.service.admin("run", run_id)["turns"][0]["failure"]


async def test_a_silent_database_is_reported_in_time(tmp_path: Path) -> None:
    """The deadline holds however often it is asked, with few threads, and it recovers once the database answers."""
    over = threading.Event()

    class Stuck(Database):
        @contextlib.contextmanager
        def read(self) -> Iterator[Connection]:
            over.wait()
            with super().read() as connection:
                yield connection

    over.set()
    database = Stuck(f"sqlite:///{tmp_path}/stuck.sqlite3")
    database.migrate()
    over.clear()
    context: Any = SimpleNamespace(database=database, settings=Settings(), clock=now_micros)
    ask = partial(ask_database, context, threading.Semaphore(8), 0.05)
    before = threading.active_count()
    try:
        answers = [await ask() for _ in range(20)]
        taken = threading.active_count() - before
    finally:
        over.set()

    assert answers == [None] * 20
    assert taken < 12
    await until(ask, "it is well again, as those that waited end one by one")
    database.close()
