"""Automations: rules carried out by one process at a time, each occurrence at most once, each decision explained.

Whatever reads or writes a file may raise `StorageError`, whose message names the cure; decisions so far are kept.
"""
