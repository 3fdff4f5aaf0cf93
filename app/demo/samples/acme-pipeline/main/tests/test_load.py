import time
import unittest

from pipeline.load import by_shop


class LoadTest(unittest.TestCase):
    def test_sales_are_added_up_by_shop(self):
        self.assertEqual(by_shop([("a", "x", 5), ("a", "y", 7), ("b", "x", 1)]), {"a": 12, "b": 1})

    def test_a_load_begins_and_ends_in_the_same_second(self):
        # Flaky: it fails whenever the clock moves on to the next second in between.
        begun = int(time.time())
        time.sleep(0.2)
        self.assertEqual(int(time.time()), begun)


if __name__ == "__main__":
    unittest.main()
