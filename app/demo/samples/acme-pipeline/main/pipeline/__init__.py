"""The nightly load."""
