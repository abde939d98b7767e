"""Run experiments and fill the pages.

    python -m benchmarks --list                     names, minutes and states
    python -m benchmarks NAME ...                   run these ("radii-*" for all that begin so)
    python -m benchmarks                            run everything that can run here and is not current
    python -m benchmarks render                     write the numbers into README and docs

An experiment is current if its file has the version of this smoothcert and the same settings. Certification continues
where it was interrupted. A copy of the source tree without git takes its commit from SMOOTHCERT_COMMIT.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import fields
from pathlib import Path

from benchmarks import pages, results
from benchmarks.catalog import EXPERIMENTS, chosen
from benchmarks.experiments import Inputs


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="only show what there is")
    parser.add_argument("--weights", type=Path, help="the folder of the six CIFAR-10 models")
    parser.add_argument("--data", type=Path, help="the folder of CIFAR-10")
    parser.add_argument("--logs", type=Path, help="the folder of published logs")
    parser.add_argument(
        "--imagenet", type=Path, help="a folder with test/ and train/ images of ImageNet"
    )
    parser.add_argument(
        "--resnet50", type=Path, help="weights of a ResNet-50, for examples/keras_resnet50.py"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("runs/results"), help="the folder for unfinished runs"
    )
    parser.add_argument("--out", type=Path, default=results.FOLDER, help="the folder for the files")
    args = parser.parse_args()
    if args.names == ["render"]:
        for page in pages.render():
            print(f"wrote {page}")
        return 0
    if unknown := [name for name in args.names if not chosen([name])]:
        parser.error(f"no experiment is named {', '.join(unknown)}: see --list")
    given = {field.name: getattr(args, field.name) for field in fields(Inputs)}
    inputs = Inputs(**{name: path and path.resolve() for name, path in given.items()})
    failed = 0
    for experiment in chosen(args.names):
        state = experiment.state(args.out)
        about = f"{experiment.name:32} {experiment.minutes:5.1f} min  {'gpu' if 'gpu' in experiment.needs else 'cpu'}"
        if args.list or state == "current":
            print(f"{about}  {state}")
        elif lacks := experiment.lacks(inputs):
            print(f"{about}  left out: needs {', '.join(lacks)}")
        else:
            print(f"{about}  runs ({state})", flush=True)
            try:
                print(f"wrote {experiment.run(inputs, args.out)}", flush=True)
            except Exception:  # the others still run
                traceback.print_exc()
                failed += 1
    if failed:
        print(f"{failed} of {len(EXPERIMENTS)} experiments failed", file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
