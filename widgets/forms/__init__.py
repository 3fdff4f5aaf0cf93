"""The parts of forms."""
