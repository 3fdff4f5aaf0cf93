"""Code hosts: requests to them, their health, and the onboarding of their projects."""
