"""The Activity room: what was asked and polled, and what became of it."""
