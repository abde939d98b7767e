"""The subject: a classifier as it is run, resolved, checked and prepared once."""

from smoothcert.smoothed.smoothed import Settings, Smoothed
from smoothcert.smoothed.subject import Prepared, Subject

__all__ = ["Prepared", "Settings", "Smoothed", "Subject"]
