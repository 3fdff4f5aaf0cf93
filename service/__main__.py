"""`python -m service`: the entry to the service's command line."""

from service.cli import main

if __name__ == "__main__":
    # Help and error messages name the installed command, which is `runwarden service`.
    main(prog_name="runwarden service")
