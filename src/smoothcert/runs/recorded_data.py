"""The data that runs were made on, if it is still where they say."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.data import Dataset, load_dataset
from smoothcert.data.base import same_data
from smoothcert.errors import InvalidInput, SmoothcertError
from smoothcert.runs.manifest import Manifest


def dataset_of(
    manifests: Sequence[Manifest | None], given: Dataset | None = None
) -> Dataset | None:
    """The given data set, or the one that all runs were made on, if it can be loaded by its name.

    A given data set that no run was made on is refused. Published logs do not name their data.
    """
    recorded = [manifest for manifest in manifests if manifest is not None]
    if given is None:
        return _recorded_dataset(recorded)
    hashes = {manifest.data_hash for manifest in recorded}
    if None not in manifests and not any(same_data(given.fingerprint, h) for h in hashes):
        raise InvalidInput(
            "other-data",
            "{data} is not the data that the runs were made on: leave it out, or give theirs",
            data=given.name,
        )
    return given


def _recorded_dataset(manifests: Sequence[Manifest]) -> Dataset | None:
    """The one data set of all runs; None if they differ or it cannot be loaded by its name."""
    sources = {(manifest.data, manifest.data_hash, manifest.in_memory) for manifest in manifests}
    if len(sources) != 1:
        return None
    [(name, fingerprint, in_memory)] = sources
    if in_memory:
        return None
    try:
        dataset = load_dataset(name)
    except SmoothcertError:
        return None
    names = [manifest.class_names for manifest in manifests if manifest.class_names is not None]
    is_renamed = any(list(dataset.class_names or ()) != recorded for recorded in names)
    return dataset if dataset.fingerprint == fingerprint and not is_renamed else None
