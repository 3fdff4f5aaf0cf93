"""What operators see of a running service: its log, its metrics and its traces. Only service processes import it."""
