import unittest

from acme_api.billing import total


class BillingTest(unittest.TestCase):
    def test_total_is_never_negative(self):
        self.assertEqual(total([{"price": 100, "count": 1}], [500]), 0)

    def test_discounts_are_taken_off(self):
        self.assertEqual(total([{"price": 700, "count": 2}], [400]), 1000)
