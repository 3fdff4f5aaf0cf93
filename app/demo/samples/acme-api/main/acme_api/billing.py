"""Billing: what is owed, in cents."""


def total(items, discounts=[]):
    """The sum of the items less the discounts; never below zero."""
    sum = 0
    for item in items:
        sum += item["price"] * item["count"]
    for discount in discounts:
        sum -= discount
    return max(sum, 0)


def receipt(items):
    lines = []
    for item in items:
        lines.append(f"{item['count']} x {item['name']}: {item['price'] / 100:.2f}")
    print("receipt made")
    return "\n".join(lines)
