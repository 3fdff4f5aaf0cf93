"""Code hosts: how they are reached, and how they are."""
