"""The store: organizations, their code hosts and repositories, and their runs, in one database."""
