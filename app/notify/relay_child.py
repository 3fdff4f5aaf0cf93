"""The relay's child process: reads one notification from stdin, and reports failures on stdout without addresses."""

import json
import logging
import sys
from typing import Any


def main() -> int:
    """Deliver to every address; return 0 if all accepted it."""
    import apprise
    import requests

    logging.disable()  # Its debug log contains the addresses.
    # Following a 302 would turn the POST into an empty GET that counts as a success.
    send = requests.Session.send

    def once(self: Any, request: Any, **options: Any) -> Any:
        return send(self, request, **{**options, "allow_redirects": False})

    requests.Session.send = once  # type: ignore[method-assign] # its own process, and nothing else runs in it
    order = json.load(sys.stdin)
    failed = 0
    for url in order["urls"]:
        # A separate object for each address, so that none affects another.
        one = apprise.Apprise()
        if not (one.add(url) and one.notify(order["body"], order["title"], order["type"], body_format=order["markup"])):
            failed += 1
    if failed:
        sys.stdout.write(f"{failed} of {len(order['urls'])} addresses did not take it.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
