"""The program: one engine under a console and a command line."""
