"""Retrying: what may fail is tried again."""

import time


def retry(action, times=3, wait_s=1):
    """Do it, and again after a pause that doubles; the last failure is raised."""
    for attempt in range(times):
        try:
            return action()
        except Exception:
            print("attempt", attempt, "failed")  # TODO: log it
            time.sleep(wait_s * 2**attempt)
