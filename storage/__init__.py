"""Runwarden's memory: the cache, which can be rebuilt, and the ledger, which cannot."""
