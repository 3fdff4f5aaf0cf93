"""`python -m service`: the entry to the service's command line."""

import gc

from service.cli import main

if __name__ == "__main__":
    gc.disable()  # imports make no garbage; looking for it would take a quarter of a command's time
    # Help and error messages name the installed command, which is `runwarden service`.
    main(prog_name="runwarden service")
