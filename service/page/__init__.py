"""The page: the service in a browser, on the same functions as the API."""
