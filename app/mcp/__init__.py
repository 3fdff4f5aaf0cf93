"""The same facts and proposals as tools for programs (MCP)."""
