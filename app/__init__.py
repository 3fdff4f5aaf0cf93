"""The program: one engine under a console, a command line and a bot."""
