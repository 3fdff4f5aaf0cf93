"""The relay's child process: reads one notification from stdin, and reports failures on stdout without addresses."""

import json
import logging
import sys
from typing import Any, Final

from app.api.network import REFUSED, TRUST, Network

CONNECTION: Final = "no connection"
CERTIFICATE: Final = "a certificate that is not trusted"
FIXES: Final = {
    "401": "Renew the login or token in its address.",
    "403": "Renew the login or token in its address, or allow it to post there.",
    "404": "Correct its address: there is nothing at it.",
    "410": "Create a new address: this one was withdrawn.",
    "429": "It limits how many messages it accepts: raise group_interval.",
    "5": "This may pass by itself. Check whether the receiving service works.",
    "3": "Write the address that it redirects to.",
    CERTIFICATE: TRUST,
    CONNECTION: "Check the host's name and port, the network and the proxy.",
}
CHECK: Final = "Check the address, and what Apprise says of it: apprise -vv ADDRESS."


def main() -> int:
    """Deliver to every address; return 0 if all accepted it."""
    import apprise
    import requests

    logging.disable()  # Its debug log contains the addresses.
    # Following a 302 would turn the POST into an empty GET that counts as a success.
    send = requests.Session.send

    def once(self: Any, request: Any, **options: Any) -> Any:
        # requests reads NO_PROXY in its own way.
        proxies = dict.fromkeys(("http", "https"), network.address_of(request.url))
        ours = {"allow_redirects": False, "proxies": proxies, "cert": order["client_cert"]}
        try:
            response = send(self, request, **{**options, **ours})
        except requests.RequestException as error:
            no_connection = CERTIFICATE if REFUSED in str(error) else CONNECTION + network.through(request.url)
            answers.append(no_connection if isinstance(error, requests.ConnectionError) else type(error).__name__)
            raise
        if not response.ok or response.is_redirect:
            answers.append(f"{response.status_code} {response.reason or ''}".strip())
        return response

    requests.Session.send = once  # type: ignore[method-assign] # nothing else runs in this process
    order = json.load(sys.stdin)
    network = Network()
    failed = 0
    answers = list[str]()
    for url in order["urls"]:
        # A separate object for each address, so that none affects another.
        sender = apprise.Apprise()
        notice = order["body"], order["title"], order["type"]
        failed += not (sender.add(url) and sender.notify(*notice, body_format=order["markup"]))
    if failed:
        answered = f" It answered {', '.join(dict.fromkeys(answers))}." if answers else ""
        fix = next((fix for start, fix in FIXES.items() if any(text.startswith(start) for text in answers)), CHECK)
        sys.stdout.write(f"{failed} of {len(order['urls'])} addresses did not accept it.{answered} {fix}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
