import doctest
from importlib import import_module

import pytest

MODULES = "bounds noise sample_map coverage certificate metrics logs replay plans.base plans.fixed plans.input_specific"


@pytest.mark.parametrize("name", MODULES.split())
def test_the_examples_in_docstrings_hold(name):
    found = doctest.testmod(import_module(f"smoothcert.{name}"), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
