"""Speech recognition served from shared GPUs."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("parakeet-mps")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+unknown"
