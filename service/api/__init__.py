"""The external API of the spec over HTTP."""
