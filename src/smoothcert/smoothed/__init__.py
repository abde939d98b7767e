"""The subject: a classifier as it is run, resolved, checked and prepared once."""

from smoothcert.smoothed.prepare import ReadySubject
from smoothcert.smoothed.subject import Subject

__all__ = ["ReadySubject", "Subject"]
