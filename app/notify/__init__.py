"""Notifications: changes in few messages, over the user's routes, until one takes them.

Whatever reads or writes a file may raise `StorageError`; what was made so far is kept, and may be sent once more.
"""
