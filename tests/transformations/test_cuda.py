"""Rotations on a GPU: margins as on the host, and runs that an audit confirms."""

import pytest
import torch

import smoothcert as sc
from smoothcert.transformations.margins import cover

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
]


@pytest.mark.parametrize("kind", [sc.Rotation, sc.Zoom])
def test_margins_and_pictures_are_those_of_the_host(kind):
    transformation = kind(sc.Gaussian(0.25))
    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    near = torch.linspace(-15, 15, 16, dtype=torch.float64)
    cells = (near + 0.1, near, near + 0.2)
    pictures, margins = cover(x.cuda(), transformation, *(part.cuda() for part in cells))
    expected, expected_margins = cover(x, transformation, *cells)
    torch.testing.assert_close(pictures.cpu(), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(margins.cpu(), expected_margins, rtol=1e-9, atol=0)


def test_a_run_is_confirmed_by_its_audit_and_does_not_depend_on_its_neighbours(tmp_path):
    def certified(out, limit):
        return sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=sc.Rotation(sc.Gaussian(0.25)),
            radii=[2, 5],
            known_labels=True,
            device="cuda",
            batch=1024,
            limit=limit,
            out=out,
        )

    whole = certified(tmp_path / "whole", 60)
    assert whole.certified_accuracy([5])[0] > 0.6
    assert sc.audit(whole).holds
    for limit in (7, 31, 60):
        resumed = certified(tmp_path / "parts", limit)
    assert [c.looks for c in resumed] == [c.looks for c in whole]
