"""The Health room: code hosts, our link and the token."""
