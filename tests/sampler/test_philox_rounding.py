"""The compiled noise kernel, without a GPU."""

import re
from collections import Counter

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("triton.backends.nvidia")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from smoothcert.sampler import philox  # noqa: E402

SIGNATURE = {
    "out": "*bf16",
    "inputs": "*fp32",
    "rows": "*i32",
    "scale": "fp32",
    "seed": "i64",
    "batch": "i32",
    "size": "i32",
    "quarter": "i32",
    "LAW": "constexpr",
    "BLOCK": "constexpr",
}


def arithmetic(law, *, aligned):
    """How often the kernel has each instruction that rounds."""
    divisible = [["tt.divisibility", 16]]
    attributes = {(argument,): divisible for argument in (0, 1, 2, 6, 7)} if aligned else {}
    constants = {(8,): philox._LAWS[law], (9,): philox._BLOCK}
    source = ASTSource(philox._noisy_rows, SIGNATURE, constants, attributes)
    program = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    return Counter(re.findall(r"^\s*((?:fma|mul|add|sub|sqrt)\.\S*f32)\b", program, re.MULTILINE))


@pytest.mark.parametrize("law", ["normal", "uniform", "laplace"])
def test_noise_is_rounded_the_same_way_whatever_the_alignment(law):
    """Left to itself, the compiler fuses the last addition only where inputs are not aligned."""
    found = arithmetic(law, aligned=True)
    assert found == arithmetic(law, aligned=False)
    assert found["fma.rn.f32"] >= 16  # the last addition of 16 numbers per thread
    assert found["mul.f32"]
