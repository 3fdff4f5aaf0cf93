"""Mail that does not leave: how the lab stops the creation of an organization half-way (spec 7.1)."""

from service.mail.letter import Letter, MailError


class BrokenMailer:
    """A way out that is shut; what it refuses stays owed, and the service's own post tries it again."""

    def send(self, letter: Letter) -> None:
        """Refuse.

        Raises:
            MailError: Always.
        """
        raise MailError(f"the lab was told to hold back {letter.invitation_id}")
