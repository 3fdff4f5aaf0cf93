"""The Activity tab: what was asked and polled, and what became of it."""
