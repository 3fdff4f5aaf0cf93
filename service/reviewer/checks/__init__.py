"""The checks, one module for each subject, which lists its checks in `CHECKS`."""
