"""Letters handed to a mail server (spec 4.1): over TLS made on the spot, and against peers that fail."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.mail.message import MailError, MailMessage
from service.mail.sender import SmtpRelay
from service.settings import MailSettings, SmtpSettings
from tests.fault_server import FaultServer, Raw
from tests.service.certificates import Certificate, make_certificate
from tests.service.mail_servers import PASSWORD, MailServer, mail_settings

# Logins in clear are what is tried here, on loopback.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

ENVIRONMENT = {"RUNWARDEN_SMTP_PASSWORD": PASSWORD}
LETTER = MailMessage(
    "org_1", "inv_1", "sender@runwarden.example", "jane@customer.example", b"Subject: hello\r\n\r\nhello\r\n"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def serving() -> Iterator[Callable[..., MailServer]]:
    """`serving(security=…)` starts a mail server."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(contextlib.closing(MailServer(**options)))


def relay(server: MailServer, **options: object) -> SmtpRelay:
    return SmtpRelay(SmtpSettings.model_validate(mail_settings(server, **options)), ENVIRONMENT)


def failure(post: SmtpRelay, letter: MailMessage = LETTER) -> MailError:
    with pytest.raises(MailError) as caught:
        post.send(letter)
    return caught.value


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
@pytest.mark.parametrize("login", [False, True])
def test_a_letter_arrives(
    serving: Callable[..., MailServer],
    certificate: Certificate,
    monkeypatch: pytest.MonkeyPatch,
    security: str,
    *,
    login: bool,
) -> None:
    """In clear on loopback, after STARTTLS, or over TLS from the start; with a login where one is configured."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    server = serving(certificate=None if security == "none" else certificate, security=security, login=login)
    relay(server).send(LETTER)

    assert [(one.mail_from, one.rcpt_tos) for one in server.taken] == [(LETTER.sender, [LETTER.recipient])]
    assert server.messages[0]["Subject"] == "hello"


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_certificate_without_an_authority_gets_nothing(
    serving: Callable[..., MailServer], certificate: Certificate, security: str
) -> None:
    """Neither letter nor password; the message names the cure."""
    server = serving(certificate=certificate, security=security, login=True)
    error = failure(relay(server))

    assert ("SSL_CERT_FILE" in str(error), error.refused) == (True, False)
    assert server.taken == []


def test_a_certificate_for_another_name_gets_nothing(
    serving: Callable[..., MailServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name that is configured is the name that is checked, after STARTTLS too."""
    other = make_certificate(tmp_path, "DNS:elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    server = serving(certificate=other, security="starttls")

    assert "mismatch" in str(failure(relay(server)))


def test_a_server_without_starttls_gets_nothing(serving: Callable[..., MailServer]) -> None:
    """Nothing falls back to clear text."""
    server = serving()
    error = failure(relay(server, security="starttls"))

    assert ("mail.smtp.security" in str(error), error.refused) == (True, False)
    assert server.taken == []


def test_a_wrong_password_names_the_variable_and_not_the_password(
    serving: Callable[..., MailServer], certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's to cure, so the letter waits."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    server = serving(certificate=certificate, security="starttls", login=True)
    settings = SmtpSettings.model_validate(mail_settings(server))
    error = failure(SmtpRelay(settings, {"RUNWARDEN_SMTP_PASSWORD": "open-up"}))

    assert ("RUNWARDEN_SMTP_PASSWORD" in str(error), error.refused) == (True, False)
    assert "open-up" not in str(error)


@pytest.mark.parametrize(
    ("key", "reply", "refused"),
    [
        (LETTER.recipient, "550 5.1.1 no such user", True),
        (LETTER.recipient, "451 4.7.1 greylisted, come back", False),
        (LETTER.recipient, "421 too busy", False),
        ("data", "554 5.7.1 looks like spam", True),
        ("data", "452 4.3.1 disk full", False),
    ],
)
def test_a_refusal_is_for_good_or_for_now(
    serving: Callable[..., MailServer], key: str, reply: str, *, refused: bool
) -> None:
    """5xx about recipient or message is for good, 4xx for now; the server's words are in the reason."""
    server = serving(replies={key: reply})
    error = failure(relay(server))

    assert (error.refused, reply[:12] in str(error)) == (refused, True)


def test_what_a_server_says_cannot_draw_on_a_terminal(serving: Callable[..., MailServer]) -> None:
    """Control characters in a reply do not reach log and screen."""
    server = serving(replies={LETTER.recipient: "550 \x1b[2Jgone\x07"})

    assert "550  [2Jgone " in str(failure(relay(server)))


def test_no_listener_is_for_now() -> None:
    """The letter waits for the server to come back."""
    error = failure(SmtpRelay(SmtpSettings.model_validate({"host": "127.0.0.1", "port": 1}), {}))

    assert ("127.0.0.1:1" in str(error), error.refused) == (True, False)


@pytest.mark.parametrize("greeting", [b"", b"220 ready\r\n"])
def test_a_server_that_falls_silent_is_left_in_time(greeting: bytes) -> None:
    """Before or after its greeting."""
    with FaultServer() as server:
        server.script(Raw(greeting, then="hang"))
        error = failure(_hasty(server.port))

    assert "longer than 0.3 s" in str(error)


def test_a_server_that_drips_is_left_in_time() -> None:
    """A byte now and then does not prolong the deadline."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            while not over.wait(0.05):
                connection.sendall(b"2")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        error = failure(_hasty(listener.getsockname()[1]))
        over.set()
        thread.join()

    assert "longer than 0.3 s" in str(error)


def _hasty(port: int) -> SmtpRelay:
    options = {"host": "127.0.0.1", "port": port, "security": "none", "timeout_s": 0.3}
    return SmtpRelay(SmtpSettings.model_validate(options), {})


def test_an_address_in_another_script_needs_smtputf8(serving: Callable[..., MailServer]) -> None:
    """A server that offers it gets the letter; of one that does not, nothing can be expected."""
    letter = MailMessage("org_1", "inv_1", LETTER.sender, "jösé@customer.example", LETTER.content)
    able, unable = serving(), serving(extended=False)
    relay(able).send(letter)
    error = failure(relay(unable), letter)

    assert able.taken[0].rcpt_tos == ["jösé@customer.example"]
    assert (error.refused, "SMTPUTF8" in str(error)) == (True, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"smtp": {"host": "mail.example", "security": "none", "username": "x"}}, "in clear"),
        ({"smtp": {"host": ""}}, "host"),
        ({"smtp": {"host": "mail.example", "password": "x"}}, "password"),
        ({"smtp": {"host": "mail.example", "port": 0}}, "port"),
        ({"sender": "nobody"}, "write an address"),
        ({"sender": "a@b.example\r\nBcc: c@d.example"}, "write an address"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, object], message: str) -> None:
    """A password in clear over the network, or in the file, among them."""
    with pytest.raises(ValidationError, match=message):
        MailSettings.model_validate(settings)
