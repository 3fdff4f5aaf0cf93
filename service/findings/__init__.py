"""Findings: what an agent has to remark on places in the code, read from the files that it writes (docs/agents.md)."""
