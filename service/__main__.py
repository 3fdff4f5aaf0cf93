"""`python -m service`: the one door to the service's command line."""

from service.cli import main

if __name__ == "__main__":
    main()
