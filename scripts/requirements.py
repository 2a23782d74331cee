"""Print what pip has to install for the service and the named extras, one requirement a line, from a pyproject.toml.

The images install this list before the source is there, so that a change of the source installs nothing again.

Usage: python scripts/requirements.py [EXTRA...] <pyproject.toml     (standard library only)
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence


def requirements(pyproject: str, extras: Sequence[str]) -> list[str]:
    """Return the requirements in the text of a pyproject.toml. Raises `KeyError` for an extra that it does not have."""
    project = tomllib.loads(pyproject)["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in requirements(sys.stdin.read(), sys.argv[1:]))
