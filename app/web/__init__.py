"""The console in a browser: on loopback, and only with the one-time link.

Imports textual-serve and aiohttp, of the extra `web`: `app.web.command` imports this
package once it knows they are there.
"""
