"""Agents of others: what is known of each program, where it is installed, and how its end is read."""
