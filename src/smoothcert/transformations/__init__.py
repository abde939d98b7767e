"""Transformed pictures on a device, and how far those of a whole interval are from one of them."""
