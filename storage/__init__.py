"""Runwarden's databases: the cache, which can be fetched again, and the ledger and the state, which cannot."""
