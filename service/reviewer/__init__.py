"""The bundled reviewer: it runs ruff and detect-secrets on a branch's changes and writes a review."""
