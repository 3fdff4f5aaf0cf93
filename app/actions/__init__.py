"""Acting once: every write is prepared in the ledger, sent at most once, and settled or left to the user."""
