"""The Inbox tab."""
