"""The mail sender: a mail stays in the database until it is sent, whatever happens in between (spec 3, 4.1)."""

import re
import threading
from pathlib import Path
from typing import Final

import pytest

from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.mail.message import MailError, MailMessage
from service.mail.sender import MailSender, Outbox
from service.settings import MailSettings
from service.store import invitations, organizations
from service.store.database import Database
from service.store.invitations import Invitation

MINUTE: Final = 60 * SECOND_MICROS


class RecordingMailer:
    """A mailer that keeps what it is given, or fails as told."""

    def __init__(self) -> None:
        self.tried: list[MailMessage] = []
        self.sent: list[MailMessage] = []
        """What it kept of that."""
        self.failure: MailError | None = None
        self.busy = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def send(self, message: MailMessage) -> None:
        self.tried.append(message)
        self.busy.set()
        assert self.free.wait(300)
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)


class Mailroom:
    """A mail sender over a database of its own, at a time of the test's choice."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.mailer = RecordingMailer()
        self.now = now_micros()
        self.sender = MailSender(self.database, self.mailer, MailSettings(retry_s=60), lambda: self.now)
        with self.database.write() as connection:
            parent = organizations.create(connection, name="Parent", now=self.now).id
            self.id = organizations.create(connection, name="Bücher", now=self.now, parent_id=parent).id

    def invite(self, email: str = "jane@customer.example") -> str:
        with self.database.write() as connection:
            return invitations.invite(connection, self.id, email, self.now)

    def send_due(self) -> list[str]:
        """Send what is due, as a worker does, and return its invitations."""
        with self.database.read() as connection:
            due = invitations.due_mails(connection, self.now)
        for invitation_id in due:
            self.sender.deliver_due(invitation_id)
        return due

    def look(self, invitation_id: str) -> Invitation:
        with self.database.read() as connection:
            found = invitations.by_id(connection, invitation_id)
        assert found is not None
        return found

    @property
    def code(self) -> str:
        """The code in the mail that left first."""
        return re.findall(r"rwt_\S+", self.mailer.sent[0].content.decode())[0]


@pytest.fixture
def mailroom(database: Database) -> Mailroom:
    return Mailroom(database)


def test_a_mail_that_left_is_known_to_have_left_and_its_code_forgotten(mailroom: Mailroom) -> None:
    """Until then the code is there in clear, for the mail cannot be written without it; afterwards only its digest."""
    one = mailroom.invite()
    delivered = mailroom.sender.deliver(one)

    assert delivered is not None
    assert (delivered.mail, delivered.attempts, delivered.sent_at) == ("sent", 1, mailroom.now)
    with mailroom.database.read() as connection:
        raw = connection.exec_driver_sql("SELECT * FROM mails, invitations").all()
    assert mailroom.code not in str(raw)


@pytest.mark.parametrize(("late", "opens"), [(-1, True), (0, False)])
def test_an_invitation_ends_after_thirty_days(mailroom: Mailroom, late: int, *, opens: bool) -> None:
    """Until the end its code still works; from then on it is refused, and the organization stays (spec 3)."""
    mailroom.sender.deliver(mailroom.invite())
    with mailroom.database.write() as connection:
        owner = invitations.accept(connection, mailroom.code, mailroom.now + 30 * DAY_MICROS + late)
        assert organizations.by_id(connection, mailroom.id) is not None

    assert owner == (mailroom.id if opens else None)


def test_what_failed_for_now_is_tried_at_growing_intervals(mailroom: Mailroom) -> None:
    """A minute, two, four … at most an hour, always under the same Message-ID; each failure can be seen."""
    one = mailroom.invite()
    mailroom.mailer.failure = MailError("the mail server is away")
    mailroom.sender.deliver(one)
    waits = []
    for _ in range(8):
        waits.append((mailroom.look(one).due_at - mailroom.now) // MINUTE)
        mailroom.now = mailroom.look(one).due_at - 1
        assert mailroom.send_due() == []
        mailroom.now += 1
        mailroom.send_due()
    mailroom.mailer.failure = None
    mailroom.now = mailroom.look(one).due_at
    mailroom.send_due()

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (mailroom.look(one).mail, mailroom.look(one).attempts, mailroom.look(one).failure) == ("sent", 10, None)
    assert len({re.findall(rb"Message-ID: (.+)", message.content)[0] for message in mailroom.mailer.tried}) == 1


def test_what_was_refused_waits_for_a_person(mailroom: Mailroom) -> None:
    """It is not retried automatically; an operator can make it due."""
    one = mailroom.invite()
    mailroom.mailer.failure = MailError("550 no such user", refused=True)
    mailroom.sender.deliver(one)
    mailroom.now += 29 * DAY_MICROS
    assert mailroom.send_due() == []
    refused = mailroom.look(one)
    mailroom.mailer.failure = None
    with mailroom.database.write() as connection:
        invitations.retry(connection, mailroom.now, one)
    mailroom.sender.deliver(one)

    assert (refused.state(mailroom.now), refused.failure) == ("refused", "550 no such user")
    assert mailroom.look(one).mail == "sent"


def test_a_sender_that_died_is_replaced(mailroom: Mailroom) -> None:
    """After ten minutes a worker sends the mail: at least once, with the same Message-ID."""
    one = mailroom.invite()
    assert mailroom.send_due() == []
    mailroom.now += 10 * MINUTE
    assert mailroom.send_due() == [one]

    assert mailroom.look(one).mail == "sent"


def test_an_invitation_that_expired_is_not_sent(mailroom: Mailroom) -> None:
    """30 days of trying are enough (spec 3)."""
    one = mailroom.invite()
    mailroom.now += 30 * DAY_MICROS
    mailroom.send_due()

    assert (mailroom.look(one).state(mailroom.now), mailroom.mailer.sent) == ("expired", [])
    assert "expired" in str(mailroom.look(one).failure)


def test_an_invitation_that_was_withdrawn_is_not_sent_and_opens_nothing(mailroom: Mailroom) -> None:
    """Taken back before it left, or while it is being handed over."""
    waiting, under_way = mailroom.invite(), mailroom.invite()
    with mailroom.database.write() as connection:
        assert invitations.withdraw(connection, waiting, mailroom.now)
    mailroom.sender.deliver(waiting)
    mailroom.mailer.free.clear()
    thread = threading.Thread(target=mailroom.sender.deliver, args=(under_way,))
    thread.start()
    assert mailroom.mailer.busy.wait(300)
    with mailroom.database.write() as connection:
        invitations.withdraw(connection, under_way, mailroom.now)
    mailroom.mailer.free.set()
    thread.join()

    assert len(mailroom.mailer.sent) == 1
    assert {mailroom.look(one).state(mailroom.now) for one in (waiting, under_way)} == {"withdrawn"}
    with mailroom.database.write() as connection:
        assert invitations.accept(connection, mailroom.code, mailroom.now) is None


def test_letters_are_seven_bits_and_names_are_kept(mailroom: Mailroom) -> None:
    """Whatever the script of an organization's name or of a domain: the least able server can carry it."""
    mailroom.sender.deliver(mailroom.invite("jane@bücher.example"))
    message = mailroom.mailer.sent[0]

    assert message.content.isascii()
    assert message.recipient == "jane@xn--bcher-kva.example"
    assert b"\r\n\r\n" in message.content


def test_a_name_cannot_add_headers(mailroom: Mailroom) -> None:
    """Operators may name organizations as they like; a message has the headers that we give it."""
    with mailroom.database.write() as connection:
        made = organizations.create(connection, name="Two\r\nBcc: all@customer.example", now=mailroom.now)
        one = invitations.invite(connection, made.id, "a@customer.example", mailroom.now)
    mailroom.sender.deliver(one)
    head = mailroom.mailer.sent[0].content.partition(b"\r\n\r\n")[0]

    assert b"\r\nBcc:" not in head
    assert mailroom.look(one).mail == "sent"


def test_a_further_invitation_does_not_cover_the_first(tmp_path: Path) -> None:
    """Two files in the outbox: the first may not have been delivered."""
    outbox = Outbox(tmp_path)
    for name in ("inv_1", "inv_2"):
        outbox.send(MailMessage("org_1", name, "a@b.example", "c@d.example", name.encode()))

    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "org_1.eml": "inv_1",
        "org_1.inv_2.eml": "inv_2",
    }
