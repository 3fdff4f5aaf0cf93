import time
import unittest

from acme_api.billing import total


class BillingTest(unittest.TestCase):
    def test_total_is_never_negative(self):
        self.assertEqual(total([{"price": 100, "count": 1}], [500]), 0)

    def test_discounts_are_taken_off(self):
        self.assertEqual(total([{"price": 700, "count": 2}], [400]), 1000)

    def test_a_bill_is_made_within_one_second(self):
        # Flaky: it fails whenever the clock moves on to the next second in between.
        begun = int(time.time())
        time.sleep(0.15)
        self.assertEqual(int(time.time()), begun)
