"""Keeping the cache in step with the service: new, changed and vanished runs, and health.

A request that fails raises `ApiError`; runs before it are kept.
"""
