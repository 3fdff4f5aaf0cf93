"""The lab: faults, time and history on demand, for testing clients of the service. It must be switched on."""
