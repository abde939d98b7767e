"""The compiled noise kernel, without a GPU."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("triton.backends.nvidia")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from smoothcert.noises.rounded_normal import thresholds  # noqa: E402
from smoothcert.sampling import philox  # noqa: E402

SIGNATURE = {
    "out": "*bf16",
    "inputs": "*fp32",
    "rows": "*i32",
    "scale": "fp32",
    "table": "*i32",
    "ratio": "fp32",
    "tail": "fp32",
    "smallest": "i32",
    "length": "i32",
    "seed": "i64",
    "batch": "i32",
    "size": "i32",
    "quarter": "i32",
    "LAW": "constexpr",
    "STEPS": "constexpr",
    "BLOCK": "constexpr",
}


def arithmetic(law, *, aligned):
    """How often the kernel has each instruction that rounds."""
    divisible = [["tt.divisibility", 16]]
    attributes = {(argument,): divisible for argument in (0, 1, 2, 11, 12)} if aligned else {}
    constants = {(13,): philox._LAWS[law], (14,): 0, (15,): philox._BLOCK}
    source = ASTSource(philox._noisy_rows, SIGNATURE, constants, attributes)
    program = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    return Counter(re.findall(r"^\s*((?:fma|mul|add|sub|sqrt)\.\S*f32)\b", program, re.MULTILINE))


@pytest.mark.parametrize("law", ["normal", "uniform", "laplace"])
def test_noise_is_rounded_the_same_way_whatever_the_alignment(law):
    """Left to itself, the compiler fuses the last addition only where inputs are not aligned."""
    instructions = arithmetic(law, aligned=True)
    assert instructions == arithmetic(law, aligned=False)
    assert instructions["fma.rn.f32"] >= 16  # the last addition of 16 numbers per thread
    assert instructions["mul.f32"]


@pytest.mark.parametrize("ratio", [0.5 * 255, 1000.0])
def test_a_number_on_the_grid_is_exact_at_every_boundary_and_in_the_tails(ratio, tmp_path):
    """The Triton functions in Triton's interpreter, against the definition."""
    deviation = ratio / 255 / (1 / 255)
    table, generator = thresholds(deviation), np.random.default_rng(0)
    above, whole = table.values >> np.uint64(32), np.uint64(2**32 - 1)
    near = [((above + np.uint64(d % 2**64)) & whole) << np.uint64(32) for d in (-2, -1, 0, 1, 2)]
    near += [words | whole for words in near]
    distances = generator.integers(0, 2**64, 100_000, np.uint64) >> generator.integers(
        0, 64, 100_000, np.uint64
    )
    bits = np.concatenate([*near, table.values, table.values - np.uint64(1), distances, ~distances])
    np.save(tmp_path / "words.npy", bits ^ np.uint64(2**63))
    command = [
        sys.executable,
        Path(__file__).parent / "interpreted.py",
        "words.npy",
        "numbers.npy",
        str(ratio),
    ]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)
    expected = table.smallest + np.searchsorted(table.values, bits, side="right")
    assert np.array_equal(np.load(tmp_path / "numbers.npy"), expected)
