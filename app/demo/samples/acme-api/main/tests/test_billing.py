from acme_api.billing import total


def test_total_is_never_negative():
    assert total([{"price": 100, "count": 1}], [500]) == 0
