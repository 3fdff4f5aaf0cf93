"""Copies a folder to the backup host."""

import subprocess
import sys


def backup(folder, host="backup.acme.example"):
    command = "tar c " + folder + " | ssh " + host + " 'cat > latest.tar'"
    return subprocess.call(command, shell=True)


if __name__ == "__main__":
    sys.exit(backup(sys.argv[1]))
