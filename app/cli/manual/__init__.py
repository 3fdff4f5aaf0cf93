"""What explains the commands: examples, manual pages and completion."""
