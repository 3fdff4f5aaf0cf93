"""Findings: an agent's remarks on places in the code, read from the files that it writes (docs/run/agents.md)."""
