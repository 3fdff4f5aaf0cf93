"""The lab: faults, time and history on demand, for those who test clients of the service. Never on by itself."""
