"""Prints a CycloneDX SBOM of the pinned dependencies: `sbom.py VERSION REQUIREMENTS`."""

import json
import re
import sys
from pathlib import Path

PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;\\]+)(.*(?:\n[ ].*)*)", re.MULTILINE)


def component(name: str, version: str, rest: str) -> dict[str, object]:
    """One pinned package, with the hashes of its files."""
    hashes = re.findall(r"--hash=sha256:(\w+)", rest)
    purl = f"pkg:pypi/{name}@{version}"
    files = [{"alg": "SHA-256", "content": each} for each in hashes]
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": files}


if __name__ == "__main__":
    release, file = sys.argv[1:]
    ours = {"type": "application", "name": "runwarden-console", "version": release}
    ours |= {"licenses": [{"license": {"id": "Apache-2.0"}}]}
    found = [component(*pin) for pin in PIN.findall(Path(file).read_text("utf-8"))]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    print(json.dumps(document | {"metadata": {"component": ours}, "components": found}, indent=1))
