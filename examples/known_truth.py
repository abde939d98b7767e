"""Certificates against the truth: a half-space is a classifier whose largest radius is known, its distance."""

import smoothcert as sc


def positive(batch):
    """Class 1 where the first number is above 0: p = Phi(distance / sigma)."""
    return (batch[:, 0] > 0).long()


smoothed = sc.Smoothed(positive, sigma=0.5, classes=2, device="cpu", batch=1000)
plan = sc.InputSpecific(10_000, decline=0.05)
print("true radius   certified   samples")
distances = (0.02, 0.1, 0.3, 0.6, 1.0)
results = smoothed.certify([[distance, 0.0, 0.0] for distance in distances], plan=plan)
for distance, certificate in zip(distances, results, strict=True):
    shown = "  abstained" if certificate.abstained else f"{certificate.radius:11.4f}"
    print(f"{distance:11.2f} {shown} {certificate.samples:9,}")
