"""What a user types leads to a data set, or to what could be typed."""

from __future__ import annotations

import pytest

from smoothcert.datasets import load_dataset
from smoothcert.errors import InvalidInput


@pytest.mark.parametrize("spec", ["nowhere", "mnist", "cifar10", "cifar10:", "imagenet", "hf", "fashion-mnist:"])
def test_what_is_no_data_set_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInput, match=r":DIR|hf:NAME"):
        load_dataset(spec)
