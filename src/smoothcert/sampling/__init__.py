"""From requests to votes: keyed noise, packing, and the work on the device."""
