"""torchvision is imported without torch's compiler, which works afterwards as always."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from smoothcert.models import load_classifier

load_classifier("{spec}", weights="none")
print("torch._dynamo" in sys.modules)
from torchvision.ops import roi_align
from torchvision.ops.roi_align import is_compile_supported

print(is_compile_supported("cpu"))
print(tuple(roi_align(torch.rand(1, 3, 8, 8), [torch.tensor([[0.0, 0.0, 4.0, 4.0]])], 2).shape))
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist())
"""


@pytest.mark.parametrize(
    ("spec", "needs_compiler"), [("torchvision:resnet18", False), ("timm:resnet18", None)]
)
def test_the_compiler_is_imported_when_it_is_needed(spec, needs_compiler):
    pytest.importorskip(spec.partition(":")[0])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(spec=spec)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    imported, supported, shape, result = done.stdout.split("\n")[:4]
    assert needs_compiler is None or imported == str(needs_compiler)
    assert (supported, shape, result) == ("True", "(1, 3, 2, 2)", "[2.0, 2.0]")


def test_an_import_that_needs_more_gets_the_compiler():
    program = (
        "from smoothcert.models.vision import without_compiler\n"
        "with without_compiler():\n"
        "    from torch._dynamo.utils import counters, is_compile_supported\n"
        "    from torch._dynamo.config import recompile_limit\n"
        "import torch._dynamo\n"
        "print(type(torch._dynamo).__name__, type(counters).__name__, torch._dynamo.utils.counters is counters)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["module", "defaultdict", "True"], done.stderr
