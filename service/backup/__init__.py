"""Back-ups: one file with all that a service cannot make again, from either database and into either."""
