"""The way out of a sandbox without a network: a relay inside, and the service's proxies outside."""
