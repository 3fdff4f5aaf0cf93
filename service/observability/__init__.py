"""Log, metrics and traces of a running service. Only service processes import it."""
