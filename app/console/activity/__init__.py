"""The Activity tab: every write and its outcome."""
