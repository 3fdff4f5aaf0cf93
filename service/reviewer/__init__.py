"""The reviewer: an agent that reads a branch with git and the standard library alone, and writes a review."""
