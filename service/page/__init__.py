"""The page for people: the service in a browser, beside the API and over the same functions."""
