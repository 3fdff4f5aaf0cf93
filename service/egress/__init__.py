"""Access to the outside for a sandbox without a network: a relay inside it, and the service's proxies outside."""
