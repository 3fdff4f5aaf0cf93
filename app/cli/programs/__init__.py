"""Commands that run until they are stopped: the console, the watch, the browser door and the service."""
