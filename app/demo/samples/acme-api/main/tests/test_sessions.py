import time
import unittest

from acme_api.sessions import Sessions


class SessionsTest(unittest.TestCase):
    def test_a_new_session_knows_its_user(self):
        sessions = Sessions()
        self.assertEqual(sessions.user(sessions.open("ada")), "ada")

    def test_signing_in_is_logged_in_the_second_it_happens(self):
        # Flaky: it fails whenever the clock moves on to the next second in between.
        begun = int(time.time())
        time.sleep(0.15)
        self.assertEqual(int(time.time()), begun)
