"""The inbox: what needs a person."""
