"""The cache: what was seen of the service, readable at once; if it is lost, it is fetched again."""
