"""Make `small-log.tsv`: a log in the published form, with simulated inputs.

Run it with `python tests/data/make_small_log.py`. Sixty inputs of four classes, fixed sampling with 10,000 samples at
sigma 0.5 and alpha 0.001; radii with three digits as published logs print them (so some stand above the provable
maximum), the last ten inputs abstained on or wrong.
"""

from pathlib import Path

import numpy as np

from smoothcert import Certificate, Fixed, Gaussian, Look

SAMPLES, SIGMA, ALPHA = 10_000, 0.5, 0.001


def rows() -> list[str]:
    rng = np.random.default_rng(22)
    plan, noise = Fixed(SAMPLES, alpha=ALPHA), Gaussian(SIGMA)
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    p = np.concatenate([np.full(12, 1.0), 1 - np.geomspace(1e-4, 0.45, 43), np.full(5, 0.49)])
    for number, share in enumerate(p):
        label = number % 4
        voted = (label + 1) % 4 if number >= 50 else label
        looks = [Look(n, {voted: int(rng.binomial(n, share))}) for n in (plan.pilot, SAMPLES)]
        found = Certificate.from_votes(looks, plan=plan, noise=noise, label=label)
        prediction = -1 if found.abstained else found.prediction
        time = f"0:00:{rng.uniform(1, 2):09.6f}"
        lines.append(
            f"{20 * number}\t{label}\t{prediction}\t{found.radius:.3}\t{int(found.correct)}\t{time}"
        )
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("small-log.tsv").write_text("\n".join(rows()) + "\n")
