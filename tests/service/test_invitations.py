"""Invitations reach people (spec 4.1, 7.1): the service, its command line, and a mail server, all of them real."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from service.cli import main
from tests.service.mail_servers import MailServer
from tests.waiting import eventually


def smtp(server: MailServer, retry_s: float = 0.1) -> str:
    return (
        f'[mail]\nretry_s = {retry_s}\n[mail.smtp]\nhost = "127.0.0.1"\nport = {server.port}\n'
        'security = "none"\ntimeout_s = 60\n'
    )


def create(api: Any, email: str) -> httpx.Response:
    answer: httpx.Response = api.post("/external/organizations", {"email": email})
    return answer


def listed(api: Any) -> list[dict[str, Any]]:
    return list(api.service.admin("invitation", "list")["invitations"])


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with contextlib.closing(MailServer()) as server:
        yield server


def test_a_mail_server_that_is_away_loses_nothing(start: Callable[..., Any], mail_server: MailServer) -> None:
    """500 names the organization; the invitation waits, through a kill -9 too, and leaves when the server is back."""
    mail_server.close()
    api = start(settings=smtp(mail_server, retry_s=1))
    answer = create(api, "jane@customer.example")
    # Before it is tried again: the mail of a worker that died stays with it for ten minutes.
    api.service.kill()
    waiting = listed(api)[0]
    status = api.service.admin("status")["mails"]
    mail_server.start()
    api.service.restart()
    eventually(lambda: bool(mail_server.taken), "the mail arrives")
    eventually(lambda: listed(api)[0]["state"] == "sent", "the invitation is known to have left")

    assert create(api, "joe@customer.example").status_code == 201
    assert list(api.service.outbox.iterdir()) == []
    assert (answer.status_code, answer.json()["error_code"]) == (500, "provisioning_failed")
    assert waiting["organization_id"] in answer.json()["message"]
    assert (waiting["state"], waiting["email"], waiting["sent_at"]) == ("waiting", "jane@customer.example", None)
    assert str(mail_server.port) in waiting["failure"]
    assert waiting["next_attempt_at"] is not None
    assert status == {"waiting": 1, "refused": 0}


def test_a_refused_address_is_the_operators_to_cure(start: Callable[..., Any], mail_server: MailServer) -> None:
    """500; refused, with the server's words; retried when the cause is gone, or sent to another address."""
    mail_server.replies["jane@customer.example"] = "550 5.1.1 no such user"
    api = start(settings=smtp(mail_server))
    answer = create(api, "jane@customer.example")
    refused = listed(api)[0]
    still = CliRunner().invoke(main, ["invitation", "retry", "--data-dir", str(api.service.data_dir)])
    mail_server.replies.clear()
    retried = api.service.admin("invitation", "retry", refused["id"])["invitations"]
    another = api.service.admin("invitation", "send", "joe@customer.example", "--org", refused["organization_id"])

    assert (answer.status_code, "refused" in answer.json()["message"]) == (500, True)
    assert (refused["state"], "no such user" in refused["failure"]) == ("refused", True)
    assert (still.exit_code, "no such user" in still.stdout) == (1, True)
    assert [one["state"] for one in retried] == ["sent"]
    assert [one["state"] for one in another["invitations"]] == ["sent"]
    assert [message["To"] for message in mail_server.messages] == ["jane@customer.example", "joe@customer.example"]


def test_a_password_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    """Status 2 before it listens, naming the variable; `invitation send` says the same."""
    (tmp_path / "service.toml").write_text('[mail.smtp]\nhost = "127.0.0.1"\nusername = "x"\n', "utf-8")
    given = ["--data-dir", str(tmp_path)]
    CliRunner().invoke(main, ["org", "create", "Acme", *given])
    done = CliRunner().invoke(main, ["invitation", "send", "a@b.example", "--org", "acme", *given])

    assert (done.exit_code, "RUNWARDEN_SMTP_PASSWORD" in done.stderr) == (2, True)
