"""The service's API as typed calls; nothing past this package sees HTTP or loose JSON."""
