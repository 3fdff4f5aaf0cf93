"""The reviewer that ships: it has ruff and detect-secrets read what a branch changed, and writes a review of it."""
