"""Certificates and attacks on the same inputs: what is proved, what attacks leave, and how long they take."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.experiments import Inputs
from smoothcert import AtRadii, Gaussian, attack, certify


def both_sides(
    inputs: Inputs, *, models: dict[str, Any], data: str, radii: list[float], **which: Any
) -> dict[str, Any]:
    """Each model certified and attacked: the shares at each radius, and the inputs broken within their radius."""
    rows = []
    for name, (weights, sigma) in models.items():
        folder = inputs.work / name
        plan = AtRadii(radii, known_labels=True)
        path = None if weights is None else weights.format(**vars(inputs))
        model = "fashion-cnn" if weights is None else None
        start = time.perf_counter()
        certify(
            model,
            data.format(**vars(inputs)),
            weights=path,
            noise=Gaussian(sigma),
            plan=plan,
            out=folder,
            **which,
        )
        certified = time.perf_counter()
        found = attack(folder)
        about = {
            "model": name,
            "inputs": len(found),
            "broken": len(found.broken),
            "by": found.settings["by"],
        }
        about |= {
            "certify": (certified - start) / 60,
            "attack": (time.perf_counter() - certified) / 60,
        }
        for side, shares in (
            ("certified", found.certified_accuracy(radii)),
            ("not broken by attacks", found.attacked_accuracy(radii)),
        ):
            ca = {
                f"{radius:g}": 100 * float(share)
                for radius, share in zip(radii, shares, strict=True)
            }
            rows.append(about | {"side": side, "ca": ca})
    return {
        "rows": rows,
        "inputs": sum(r["inputs"] for r in rows[::2]),
        "broken": sum(r["broken"] for r in rows[::2]),
    }
