"""The health of code hosts."""
