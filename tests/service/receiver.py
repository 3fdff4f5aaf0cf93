"""A receiver of events on loopback, which verifies them with Standard Webhooks' own library."""

from typing import Any

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from tests.lab import Received, Respond, Server, Step


class Receiver(Server):
    """Takes each event once, by its `webhook-id`, if its secret proves it."""

    def __init__(self) -> None:
        super().__init__()
        self.secret = ""
        self.taken: dict[str, Any] = {}
        """By the `webhook-id`, in the order of arrival."""
        self.refused: list[Received] = []

    def answer(self, request: Received) -> Step:
        try:
            event = Webhook(self.secret).verify(request.body, request.headers)
        except (EmptyWebhookSecretError, WebhookVerificationError):
            self.refused.append(request)
            return Respond(401)
        self.taken.setdefault(request.headers["webhook-id"], event)
        return Respond(204)

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of the events of one type that were taken."""
        return [event["data"] for event in list(self.taken.values()) if event["type"] == kind]
