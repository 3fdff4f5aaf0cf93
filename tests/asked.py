"""What a fork server imports first: it waits here until it is asked for a process, which not every run does."""

import re
import select
import sys

# It was started with `main(LISTENER, ALIVE, ...)`, and imports nothing of ours before it listens.
_LISTENER, _ALIVE = (int(number) for number in re.findall(r"\d+", sys.orig_argv[-1])[:2])
try:
    _READY = select.select([_LISTENER, _ALIVE], [], [])[0]
except KeyboardInterrupt:
    _READY = []
if _LISTENER not in _READY:
    sys.exit()
