"""The Health tab: code hosts, our link and the token."""
