"""The cache: the service's data as last seen, readable at once; if it is lost, it is fetched again."""
