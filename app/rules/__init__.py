"""Rules: the `[[automations]]` of the configuration as values, with their times and their sentences.

Pure: no I/O, no clock of its own. `app.automations` carries them out.
"""
