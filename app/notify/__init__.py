"""Notifications: changes combined into few messages, and sent over the user's routes until one is delivered.

Everything that reads or writes a file may raise `StorageError`; messages made before are kept, and may be sent twice.
"""
