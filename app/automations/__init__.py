"""Automations: rules that one process at a time carries out, once per occurrence at most; every decision has a reason.

Everything that reads or writes a file may raise `StorageError`, whose message says how to fix it; decisions made before
are kept.
"""
