"""Triggers: what a code host delivers about a pull request starts runs, where a repository has rules."""
