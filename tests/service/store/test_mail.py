"""Invitations (spec 3, 4.1, 7.1): a mail stays in the database until a real mail server has accepted it."""

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.outgoing.mail import Mailer, MailError, MailMessage, deliver, mailer_of, send_by_smtp
from service.settings import DataFolder, MailSettings, Settings, SmtpSettings
from service.store import invitations, organizations
from service.store.database import Database
from service.store.invitations import Invitation
from tests.service.conftest import Make, due_jobs, refusal
from tests.service.servers import PASSWORD, USER, Certificate, MailServer, make_certificate
from tests.waiting import eventually, present

# Unencrypted logins are tested on purpose, on loopback.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

MINUTE: Final = 60 * SECOND_MICROS
LETTER: Final = MailMessage(
    "org_1", "inv_1", "sender@runwarden.example", "jane@customer.example", b"Subject: hello\r\n\r\nhello\r\n"
)


@pytest.fixture
def serving() -> Iterator[Callable[..., MailServer]]:
    """`serving(security=…)` starts a mail server."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(contextlib.closing(MailServer(**options)))


def test_a_mail_waits_for_its_server(start: Make, serving: Callable[..., MailServer]) -> None:
    """A 500 names the organization.

    The invitation waits, even through a kill -9, and is sent when the server is back.
    """
    server = serving()
    server.close()
    smtp = f'[mail.smtp]\nhost = "127.0.0.1"\nport = {server.port}\nsecurity = "none"\n'
    api = start(settings=f"[mail]\nretry_s = 1\n{smtp}")
    answer = api.post("/external/organizations", {"email": "jane@customer.example"})
    # Before the retry: a dead worker's mail stays reserved for ten minutes.
    api.service.kill()
    (waiting,) = api.service.admin("invitation", "list")["invitations"]
    owed = api.service.admin("status")["mails"]
    server.start()
    api.service.restart()

    eventually(lambda: api.service.admin("status")["mails"]["waiting"] == 0, "the invitation is known to have left")
    assert [message["To"] for message in server.messages] == ["jane@customer.example"]
    assert list(api.service.outbox.iterdir()) == []
    assert refusal(answer) == (500, "provisioning_failed")
    assert waiting["organization_id"] in answer.json()["message"]
    assert (waiting["state"], waiting["email"], waiting["sent_at"]) == ("waiting", "jane@customer.example", None)
    assert str(server.port) in waiting["failure"]
    assert waiting["next_attempt_at"] is not None
    assert owed == {"waiting": 1, "refused": 0}


class Mailroom:
    """A mail sender over its own database, at a time that the test chooses; it is its own mailer."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tried: list[MailMessage] = []
        self.sent: list[MailMessage] = []
        self.failure: MailError | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while a mail is handed over."""
        self.now = now_micros()
        settings = Settings(mail=MailSettings(retry_s=60))
        self.deliver = partial(deliver, self.database, self.send, settings, lambda: self.now)
        with self.database.write() as connection:
            self.id = organizations.create(connection, name="Bücher\r\nBcc: all@customer.example", now=self.now).id

    def send(self, message: MailMessage) -> None:
        self.tried.append(message)
        self.meanwhile()
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)

    def invite(self, email: str = "jane@customer.example") -> str:
        with self.database.write() as connection:
            return invitations.invite(connection, self.id, email, self.now)

    def withdraw(self, invitation_id: str) -> bool:
        with self.database.write() as connection:
            return bool(invitations.withdraw(connection, invitation_id, self.now))

    def accept(self, at: int) -> str | None:
        """Use the code of the mail that was sent first."""
        with self.database.write() as connection:
            return invitations.accept(connection, self.code, at)

    def send_due(self) -> list[str]:
        """Send what is due, as a worker does, and return its invitations."""
        with self.database.read() as connection:
            due = due_jobs(connection, "mail", self.now)
        for invitation_id in due:
            self.deliver(invitation_id, only_due=True)
        return due

    def of(self, invitation_id: str) -> Invitation:
        with self.database.read() as connection:
            return present(invitations.by_id(connection, invitation_id))

    @property
    def code(self) -> str:
        return re.findall(r"rwt_\S+", self.sent[0].content.decode())[0]


@pytest.fixture
def mailroom(database: Database) -> Mailroom:
    return Mailroom(database)


def test_a_name_cannot_add_headers(mailroom: Mailroom, tmp_path: Path) -> None:
    """Any name of an organization or domain leaves only our headers, in seven bits for the oldest servers.

    A sent mail leaves only the code's digest, valid for thirty days; the organization stays (spec 3).
    """
    delivered = present(mailroom.deliver(mailroom.invite("jane@bücher.example")))
    message, end = mailroom.sent[0], mailroom.now + 30 * DAY_MICROS

    assert b"\r\nBcc:" not in message.content.partition(b"\r\n\r\n")[0]
    assert message.content.isascii()
    assert message.recipient == "jane@xn--bcher-kva.example"
    assert (delivered.mail, delivered.attempts, delivered.sent_at) == ("sent", 1, mailroom.now)
    assert mailroom.code.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("service.sqlite*"))
    assert [mailroom.accept(at) for at in (end, end - 1)] == [None, mailroom.id]


def test_temporary_failures_are_retried_at_growing_intervals(mailroom: Mailroom) -> None:
    """Retries follow after one, two, four minutes, at most an hour, with the same Message-ID.

    A lost first attempt is repeated after ten.
    """
    one, waits = mailroom.invite(), []
    mailroom.failure = MailError("the mail server is away")
    assert mailroom.send_due() == []
    mailroom.now += 10 * MINUTE
    assert mailroom.send_due() == [one]
    for _ in range(8):
        waits.append((mailroom.of(one).due_at - mailroom.now) // MINUTE)
        mailroom.now = mailroom.of(one).due_at
        mailroom.send_due()
    mailroom.failure = None
    mailroom.now = mailroom.of(one).due_at
    mailroom.send_due()

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (mailroom.of(one).mail, mailroom.of(one).attempts, mailroom.of(one).failure) == ("sent", 10, None)
    assert len({re.findall(rb"Message-ID: (.+)", message.content)[0] for message in mailroom.tried}) == 1


def test_refused_and_expired_mail_is_not_retried(mailroom: Mailroom) -> None:
    """A refused mail is not retried automatically, and none after thirty days (spec 3)."""
    one = mailroom.invite()
    mailroom.failure = MailError("550 no such user", refused=True)
    mailroom.deliver(one)
    mailroom.now += 29 * DAY_MICROS
    assert mailroom.send_due() == []
    assert (mailroom.of(one).state(mailroom.now), mailroom.of(one).failure) == ("refused", "550 no such user")
    mailroom.failure = None
    with mailroom.database.write() as connection:
        invitations.retry(connection, mailroom.now, one)
    mailroom.now += DAY_MICROS
    mailroom.send_due()

    assert (mailroom.of(one).state(mailroom.now), mailroom.sent) == ("expired", [])
    assert "expired" in str(mailroom.of(one).failure)


def test_a_withdrawn_invitation_is_not_sent(mailroom: Mailroom) -> None:
    """An invitation may be withdrawn before or during the delivery."""
    waiting, under_way = mailroom.invite(), mailroom.invite("joe@customer.example")
    assert mailroom.withdraw(waiting)
    mailroom.deliver(waiting)
    mailroom.meanwhile = lambda: mailroom.withdraw(under_way)
    mailroom.deliver(under_way)

    assert len(mailroom.sent) == 1
    assert {mailroom.of(one).state(mailroom.now) for one in (waiting, under_way)} == {"withdrawn"}
    assert mailroom.accept(mailroom.now) is None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWARDEN_SMTP_PASSWORD", PASSWORD)


def relay(server: MailServer, **options: object) -> Mailer:
    """A relay to a server, with the right password if it wants one."""
    login = {"username": USER} if server.login else {}
    section = {"host": "127.0.0.1", "port": server.port, "security": server.security, "timeout_s": 60} | login
    return partial(send_by_smtp, SmtpSettings.model_validate(section | options))


def test_a_mailer_does_not_show_the_password(tmp_path: Path) -> None:
    """Every request's context contains the mailer, and an error may show its context."""
    smtp = SmtpSettings.model_validate({"host": "127.0.0.1", "username": USER})

    assert PASSWORD not in repr(mailer_of(DataFolder(tmp_path), MailSettings(smtp=smtp)))


def failure(post: Mailer) -> MailError:
    with pytest.raises(MailError) as caught:
        post(LETTER)
    return caught.value


def test_mail_is_delivered(
    serving: Callable[..., Any], certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter goes unencrypted on loopback, after STARTTLS, or over TLS, with a login if configured."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    for security, login in (("none", False), ("starttls", True), ("tls", True)):
        server = serving(certificate=None if security == "none" else certificate, security=security, login=login)
        relay(server)(LETTER)

        assert [(one.mail_from, one.rcpt_tos) for one in server.taken] == [(LETTER.sender, [LETTER.recipient])]
        assert server.messages[0]["Subject"] == "hello"


def test_no_mail_is_sent_without_a_valid_certificate(
    serving: Callable[..., Any], certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known authority or TLS, neither letter nor password is sent."""
    other = make_certificate(tmp_path, "DNS:elsewhere.example")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    server = serving(certificate=certificate, security="starttls", login=True)
    elsewhere, clear = serving(certificate=other, security="tls"), serving()
    unknown, bare = failure(relay(server)), failure(relay(clear, security="starttls"))
    monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    mismatch = failure(relay(elsewhere))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    wrong = failure(relay(server, username="another"))

    for error, words in ((unknown, "SSL_CERT_FILE"), (bare, "mail.smtp.security"), (mismatch, "mismatch")):
        assert (words in str(error), error.refused) == (True, False)
    assert ("RUNWARDEN_SMTP_PASSWORD" in str(wrong), wrong.refused, PASSWORD in str(wrong)) == (True, False, False)
    assert server.taken == elsewhere.taken == clear.taken == []


def test_a_password_is_never_sent_in_clear_text(
    serving: Callable[..., Any], certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no fallback to clear text; for a wrong password the error names the variable, and the letter waits."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    clear, strict = serving(), serving(certificate=certificate, security="starttls", login=True)
    bare = failure(relay(clear, security="starttls"))
    wrong = failure(relay(strict, username="another"))

    assert ("mail.smtp.security" in str(bare), bare.refused, clear.taken) == (True, False, [])
    assert ("RUNWARDEN_SMTP_PASSWORD" in str(wrong), wrong.refused) == (True, False)
    assert PASSWORD not in str(wrong)


def test_a_mail_servers_words_are_escaped(serving: Callable[..., Any]) -> None:
    """The server's words are in the reason; 5xx about recipient or message is permanent, 4xx temporary."""
    for key, reply, refused in (
        ("data", "451 4.7.1 greylisted, come back", False),
        (LETTER.recipient, "550 \x1b[2Jgone\x07", True),
    ):
        error = failure(relay(serving(replies={key: reply})))

        assert error.refused is refused
        assert reply.replace("\x1b", "\N{SYMBOL FOR ESCAPE}").replace("\x07", "\N{SYMBOL FOR BELL}") in str(error)


def hasty(port: int) -> Mailer:
    options = {"host": "127.0.0.1", "port": port, "security": "none", "timeout_s": 0.3}
    return partial(send_by_smtp, SmtpSettings.model_validate(options))


def test_a_slow_mail_server_times_out() -> None:
    """A slow server and a closed port are temporary failures, so the mail is tried again."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            while not over.wait(0.05):
                connection.sendall(b"2")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        dripping = failure(hasty(listener.getsockname()[1]))
        over.set()
        thread.join()
    nobody = failure(hasty(1))

    assert "longer than 0.3 s" in str(dripping)
    assert ("127.0.0.1:1" in str(nobody), nobody.refused) == (True, False)


def test_unsafe_mail_settings_are_refused() -> None:
    """Examples are an unencrypted password over the network, or a password in the file."""
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"smtp": {"host": "mail.example", "security": "none", "username": "x"}}, "in clear"),
        ({"smtp": {"host": "mail.example", "password": "x"}}, "password"),
        ({"sender": "a@b.example\r\nBcc: c@d.example"}, "write an address"),
    )
    for settings, message in refused:
        with pytest.raises(ValidationError, match=message):
            MailSettings.model_validate(settings)
