"""Rules: the `[[automations]]` of the configuration as values, their times, and what they say in words.

Pure: no I/O, no clock of its own. What carries them out is `app.automations`.
"""
