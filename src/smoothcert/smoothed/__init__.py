"""The subject: a classifier as it is run, resolved, checked and prepared once."""
