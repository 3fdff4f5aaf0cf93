"""The command line's data and proposals as tools for programs (MCP)."""
