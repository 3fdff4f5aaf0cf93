"""`python -m service`: the entry to the service's command line."""

from service.cli import main

if __name__ == "__main__":
    # Where `python -m service` came from, `runwarden service` is: the name that every help and cure uses.
    main(prog_name="runwarden service")
