"""`smoothcert gate`: may this model ship?"""

from __future__ import annotations

from pathlib import Path

import typer

from smoothcert.cli.groups import PlaceOptions
from smoothcert.cli.options import Json, print_json


def command(
    run: Path,
    *,
    policy: Path,
    places: PlaceOptions,
    baseline: Path | None = None,
    junit: Path | None = None,
    json: Json = False,
) -> None:
    """Hold a run against a policy. The exit code is 0 if it passes, 1 if it fails and 3 if that cannot be decided.

    Args:
        run: The run's folder.
        policy: The rules, a TOML file.
        baseline: The run to compare with, if it is not the one that the policy names.
        junit: Also write the outcome as JUnit XML.
    """
    from smoothcert._files import write_whole
    from smoothcert.tasks.gate import EXIT_CODES, gate

    found = gate(run, policy, baseline=baseline, **places.settings())
    if junit is not None:
        write_whole(junit, found.junit())
    if json:
        print_json(found.plain())
    else:
        for rule in found.rules:
            print(f"{rule.outcome:<9}  {rule.name}: {rule.reason}")
        print(f"{run}: {found.outcome}" + (" with so few inputs" if found.outcome == "undecided" else ""))
    raise typer.Exit(EXIT_CODES[found.outcome])
