"""What the code hosts' samples add up to: uptime, a strip of history, incidents. Pure; the cache gives the samples."""
