"""Loading: reports as the shops send them, one line a sale."""

import csv


def sales(path):
    """The sales of a report: shop, article, cents."""
    rows = csv.reader(open(path))
    return [(shop, article, int(float(price) * 100)) for shop, article, price in rows]


def by_shop(rows):
    totals = {}
    for shop, _, cents in rows:
        if not shop in totals:
            totals[shop] = 0
        totals[shop] = totals[shop] + cents
    return totals
