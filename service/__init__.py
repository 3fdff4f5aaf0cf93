"""The service: the external API of `spec`, implemented for real, in a process of its own."""
