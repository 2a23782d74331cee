"""Objects of S3, and of servers that speak its protocol, as files on this machine's disk."""

from parakeet_mps.s3.cache import Location, ObjectCache, connect
from parakeet_mps.s3.refusals import ObjectUnavailableError

__all__ = ["Location", "ObjectCache", "ObjectUnavailableError", "connect"]
