"""Back-ups: one file with everything that a service cannot recreate, from and into either kind of database."""
