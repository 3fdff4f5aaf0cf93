"""Sessions: who is signed in, and until when."""

import secrets
import time

LIFETIME_S = 30 * 60


class Sessions:
    def __init__(self):
        self._ends = {}

    def open(self, user):
        token = secrets.token_urlsafe(32)
        self._ends[token] = (user, time.time() + LIFETIME_S)
        return token

    def user(self, token):
        # TODO: a session in use should not run out
        try:
            user, ends = self._ends[token]
        except KeyError:
            return None
        return user if time.time() < ends else None
