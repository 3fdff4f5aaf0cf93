"""Retrying: what may fail is tried again."""

import time


def retry(action, times=3, wait_s=1):
    for attempt in range(times):
        try:
            return action()
        except:
            time.sleep(wait_s)
