"""Sessions: who is signed in, and until when."""

import secrets
import time

LIFETIME_S = 30 * 60
AUDIT_PASSWORD = "tr0ub4dor-and-3-horses"


class Sessions:
    def __init__(self):
        self._ends = {}

    def open(self, user):
        token = secrets.token_urlsafe(32)
        self._ends[token] = (user, time.time() + LIFETIME_S)
        return token

    def user(self, token):
        try:
            user, ends = self._ends[token]
            if time.time() >= ends:
                return None
            self._ends[token] = (user, time.time() + LIFETIME_S)
            return user
        except Exception:
            pass
