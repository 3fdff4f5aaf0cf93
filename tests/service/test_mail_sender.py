"""The post: mail is owed in the database until it left, whatever happens in between (spec 3, 4.1)."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.mail.mailers import Outbox
from service.mail.message import MailError, MailMessage
from service.mail.sender import CLAIM_MICROS, MailSender
from service.settings import Mail
from service.store import invitations, organizations, trials
from service.store.database import Database
from service.store.invitations import Invitation

MINUTE: Final = 60 * SECOND_MICROS


class Letterbox:
    """A way out that keeps what it is given, or fails as told."""

    def __init__(self) -> None:
        self.tried: list[MailMessage] = []
        self.letters: list[MailMessage] = []
        """What it kept of that."""
        self.failure: MailError | None = None
        self.busy = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def send(self, letter: MailMessage) -> None:
        self.tried.append(letter)
        self.busy.set()
        assert self.free.wait(20)
        if self.failure is not None:
            raise self.failure
        self.letters.append(letter)


class Office:
    """A post over a database of its own, at a time of the test's choice."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(f"sqlite:///{folder}/service.sqlite")
        self.database.migrate()
        self.letterbox = Letterbox()
        self.now = now_micros()
        self.post = MailSender(self.database, self.letterbox, Mail(retry_s=60), lambda: self.now)
        with self.database.write() as connection:
            parent = organizations.create(connection, name="Parent", now=self.now).id
            self.id = organizations.create(connection, name="Bücher", now=self.now, parent_id=parent).id

    def invite(self, email: str = "jane@customer.example", due_in: int = CLAIM_MICROS) -> str:
        with self.database.write() as connection:
            return invitations.invite(connection, self.id, email, self.now, due_at=self.now + due_in)

    def look(self, invitation_id: str) -> Invitation:
        with self.database.read() as connection:
            found = invitations.by_id(connection, invitation_id)
        assert found is not None
        return found


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.database.close()


def test_a_mail_that_left_is_known_to_have_left_and_its_code_forgotten(office: Office) -> None:
    """Until then the code is there in clear, for nobody could write the mail without it; afterwards only its digest."""
    one = office.invite()
    delivered = office.post.deliver(one)
    code = re.findall(r"rwt_\S+", office.letterbox.letters[0].content.decode())[0]

    assert delivered is not None
    assert (delivered.mail, delivered.attempts, delivered.sent_at) == ("sent", 1, office.now)
    with office.database.read() as connection:
        raw = connection.exec_driver_sql("SELECT * FROM mails, invitations").all()
    assert code not in str(raw)


def test_what_failed_for_now_is_tried_at_growing_intervals(office: Office) -> None:
    """A minute, two, four … at most an hour, always under the same Message-ID; each failure can be seen."""
    one = office.invite()
    office.letterbox.failure = MailError("the mail server is away")
    office.post.deliver(one)
    waits = []
    for _ in range(8):
        waits.append((office.look(one).due_at - office.now) // MINUTE)
        office.now = office.look(one).due_at - 1
        assert office.post.deliver_due() == []
        office.now += 1
        office.post.deliver_due()
    office.letterbox.failure = None
    office.now = office.look(one).due_at
    office.post.deliver_due()

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (office.look(one).mail, office.look(one).attempts, office.look(one).failure) == ("sent", 10, None)
    assert len({re.findall(rb"Message-ID: (.+)", letter.content)[0] for letter in office.letterbox.tried}) == 1


def test_what_was_refused_waits_for_a_person(office: Office) -> None:
    """It is not retried automatically; an operator can make it due."""
    one = office.invite()
    office.letterbox.failure = MailError("550 no such user", refused=True)
    office.post.deliver(one)
    office.now += 29 * DAY_MICROS
    assert office.post.deliver_due() == []
    refused = office.look(one)
    office.letterbox.failure = None
    with office.database.write() as connection:
        invitations.make_mails_due(connection, office.now, one)
    office.post.deliver_due()

    assert (refused.state(office.now), refused.failure) == ("refused", "550 no such user")
    assert office.look(one).mail == "sent"


def test_a_sender_that_died_is_replaced(office: Office) -> None:
    """Its claim runs out, and the mail is due again: at least once, with the same Message-ID."""
    one = office.invite(due_in=CLAIM_MICROS)
    assert office.post.deliver_due() == []
    office.now += CLAIM_MICROS
    office.post.deliver_due()

    assert office.look(one).mail == "sent"


def test_two_posts_never_deliver_the_same_mail(office: Office) -> None:
    """While one has it in hand, it is not due for the other."""
    office.invite(due_in=0)
    office.letterbox.free.clear()
    first = threading.Thread(target=office.post.deliver_due)
    first.start()
    assert office.letterbox.busy.wait(20)
    others = MailSender(office.database, office.letterbox, Mail(), lambda: office.now).deliver_due()
    office.letterbox.free.set()
    first.join()

    assert others == []
    assert len(office.letterbox.letters) == 1


def test_of_two_who_saw_the_same_mail_due_one_gets_it(office: Office) -> None:
    """Both have read the list; the claim decides."""
    one = office.invite(due_in=0)
    with office.database.write() as connection:
        claims = [
            invitations.claim_mail(connection, one, office.now, until=office.now + CLAIM_MICROS) for _ in range(2)
        ]

    assert claims == [True, False]


def test_an_invitation_that_expired_is_not_sent(office: Office) -> None:
    """30 days of trying are enough (spec 3)."""
    one = office.invite()
    office.now += 30 * DAY_MICROS
    office.post.deliver_due()

    assert (office.look(one).state(office.now), office.letterbox.letters) == ("expired", [])
    assert "expired" in str(office.look(one).failure)


def test_an_invitation_that_was_withdrawn_is_not_sent_and_opens_nothing(office: Office) -> None:
    """Taken back before it left, or while it is being handed over."""
    waiting, under_way = office.invite(), office.invite()
    with office.database.write() as connection:
        assert invitations.withdraw(connection, waiting, office.now)
    office.post.deliver(waiting)
    office.letterbox.free.clear()
    thread = threading.Thread(target=office.post.deliver, args=(under_way,))
    thread.start()
    assert office.letterbox.busy.wait(20)
    with office.database.write() as connection:
        invitations.withdraw(connection, under_way, office.now)
    office.letterbox.free.set()
    thread.join()
    code = re.findall(r"rwt_\S+", office.letterbox.letters[0].content.decode())[0]

    assert len(office.letterbox.letters) == 1
    assert {office.look(one).state(office.now) for one in (waiting, under_way)} == {"withdrawn"}
    with office.database.write() as connection:
        assert invitations.accept(connection, code, office.now) is None


def test_invitations_of_the_first_schema_are_kept(office: Office) -> None:
    """Sent ones are sent; what never left cannot be retried, for its code was not kept, and is shown as refused."""
    sent, unsent = office.invite(), office.invite()
    office.post.deliver(sent)
    with office.database.write() as connection:
        for statement in (
            "DROP TABLE mails",
            "DROP TABLE trials",
            "ALTER TABLE offers DROP COLUMN price",
            "UPDATE runwarden_meta SET value = '1' WHERE key = 'schema_version'",
        ):
            connection.exec_driver_sql(statement)
    office.database.migrate()
    with office.database.write() as connection:
        made_due = invitations.make_mails_due(connection, office.now)
        trials.put_offer(connection, trials.Offer("X", "partner", price="1 EUR"))

    assert (office.look(sent).mail, office.look(unsent).mail, made_due) == ("sent", "refused", [])


def test_letters_are_seven_bits_and_names_are_kept(office: Office) -> None:
    """Whatever the script of an organization's name or of a domain: the least able server can carry it."""
    office.post.deliver(office.invite("jane@bücher.example"))
    letter = office.letterbox.letters[0]

    assert letter.content.isascii()
    assert letter.recipient == "jane@xn--bcher-kva.example"
    assert b"\r\n\r\n" in letter.content


def test_a_name_cannot_add_headers(office: Office) -> None:
    """Operators may name organizations as they like; a letter has the headers that we give it."""
    with office.database.write() as connection:
        made = organizations.create(connection, name="Two\r\nBcc: all@customer.example", now=office.now)
        one = invitations.invite(connection, made.id, "a@customer.example", office.now, due_at=office.now)
    office.post.deliver(one)
    head = office.letterbox.letters[0].content.partition(b"\r\n\r\n")[0]

    assert b"\r\nBcc:" not in head
    assert office.look(one).mail == "sent"


def test_a_further_invitation_does_not_cover_the_first(tmp_path: Path) -> None:
    """Two files in the outbox: somebody may not have delivered the first."""
    outbox = Outbox(tmp_path)
    for name in ("inv_1", "inv_2"):
        outbox.send(MailMessage("org_1", name, "a@b.example", "c@d.example", name.encode()))

    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "org_1.eml": "inv_1",
        "org_1.inv_2.eml": "inv_2",
    }
