"""The title and the text of a delivery, in the markup of its route; foreign text cannot mention or link."""

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Final

from app.config import NotifyRoute
from app.config.notify_settings import Markup
from app.notify.channels import fill
from app.notify.notifications import Notification
from app.text import safe_text
from storage.records.alert import Delivery

_LONGEST: Final = 600
_LOOK_ALIKES: Final = str.maketrans(
    {"@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{FULLWIDTH LESS-THAN SIGN}", ">": "\N{FULLWIDTH GREATER-THAN SIGN}"}
)
"""Look-alikes of the characters that chats obey in any format: `@everyone`, `<!channel>`, `<https://…|text>`."""
_LINK: Final = re.compile(r"\](?=\s*[(\[:])")
_MARKS: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~-])")


def disarmed(text: str) -> str:
    """Foreign text without controls, mentions and links with a text of their own."""
    return _LINK.sub("\N{FULLWIDTH RIGHT SQUARE BRACKET}", safe_text(text, limit=_LONGEST).translate(_LOOK_ALIKES))


ESCAPES: Final[Mapping[Markup, Callable[[str], str]]] = {
    "text": disarmed,
    "markdown": lambda text: _MARKS.sub(r"\\\1", disarmed(text)),
    "html": lambda text: escape(disarmed(text)),
}
"""By a route's markup; Apprise converts it for each backend."""


def values_of(delivery: Delivery, profile: str) -> dict[str, str]:
    """The placeholders' values, as received."""
    message = delivery.message
    return {
        **dict.fromkeys(("platform", "run_id", "repository", "branch", "status"), ""),
        **message.about,
        "title": message.title,
        "body": message.body,
        "kind": message.batch.rpartition(":")[2],
        "level": message.level,
        "profile": profile,
        "count": str(message.count),
        "id": str(delivery.number),
    }


def rendered(
    delivery: Delivery,
    route: NotifyRoute,
    profile: str,
    markup: Markup | None = None,
    command_line: str = "runwarden",
) -> tuple[str, str]:
    """Title and text of a delivery; without a markup as the terminal's own channels take them."""
    escaped = (lambda text: safe_text(text, limit=_LONGEST)) if markup is None else ESCAPES[markup]
    values = {name: escaped(value) for name, value in values_of(delivery, profile).items()}
    values["command_line"] = escaped(command_line)
    # A time-out may mean that it was delivered: the number shows that it is the same message.
    number = "" if "{id}" in f"{route.title}{route.text}" else " [{id}]"
    is_repeated = delivery.delivery_id and delivery.message.phase != "over" and route.repeat
    cure = " · {command_line} notify ack {id}" if is_repeated and not route.text else ""
    title, text = route.title or "{title}", f"{route.text or '{body}'}{cure}{number}"
    return fill(title, values), fill(text, values)


def notification(delivery: Delivery, route: NotifyRoute, profile: str, command_line: str = "runwarden") -> Notification:
    """A delivery as desktop and command take it."""
    title, body = rendered(delivery, route, profile, command_line=command_line)
    values = values_of(delivery, profile)
    del values["title"], values["body"]
    return Notification(
        key=f"delivery:{delivery.number}",
        kind="run",
        level=delivery.message.level,
        title=safe_text(title, limit=_LONGEST),
        body=safe_text(body, limit=_LONGEST),
        at=delivery.made_at,
        about=values,
    )
