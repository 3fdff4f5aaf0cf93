"""The checks: a module a subject, each with its checks in `CHECKS`."""
