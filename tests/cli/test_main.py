import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from smoothcert._version import __version__
from smoothcert.plans import Fixed

CERTIFY = "certify --model fashion-cnn --data fashion-mnist --sigma 0.25 --out /nowhere/run"
SMALL = Path(__file__).parents[1] / "data" / "small-log.tsv"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("map --sigma 0", "sigma must be a number above 0, got 0.0"),
        ("map --sigma half", "'--sigma': expected a number, got 'half'"),
        ("map --sigma 0.5 --samples 1.5e0", "'--samples': expected a whole number, got '1.5e0'"),
        (
            f"{CERTIFY} --samples 1000 --batch 200 --shard 3/2",
            "--shard 3/2 must be a part and the number of parts, from 1/16 to 16/16",
        ),
        (
            CERTIFY.replace("cnn", "cn"),
            "unknown model 'fashion-cn': did you mean fashion-cnn, fashion-cnn-clean?",
        ),
        (CERTIFY.replace("mnist", "mnst"), "nor a folder of images: did you mean fashion-mnist?"),
        ("map --sigma 0.5 --kind both", "'both' is not one of"),
        ("map --sigma 0.5 --sogma 1", "--sogma"),
        ("map --sigma 0.5 --at half", "'--at': expected numbers separated by commas, got 'half'"),
        (
            f"{CERTIFY} --workers 2 --gpus-per-worker 0",
            "--workers 2, --gpus-per-worker 0.0: only for --executor ray",
        ),
        (f"{CERTIFY} --executor ray --devices cuda:0", "--devices cuda:0 is for --executor local"),
        (f"{CERTIFY} --devices cpu --device cpu", "give --device cpu or --devices cpu, not both"),
        (
            f"{CERTIFY} --devices 0,1",
            "devices must be names of one kind, as in --devices cuda:0,cuda:1",
        ),
        ("fly", "fly"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(smoothcert, line, named):
    answer = smoothcert(line)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("smoothcert: ")
    assert answer.err.count("\n") == 1
    assert named in answer.err
    assert "Traceback" not in answer.err


def test_an_error_of_our_own_is_not_hidden(smoothcert):
    broken = typer.Typer()
    broken.command("divide")(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        smoothcert("", broken)


def test_code_of_the_user_that_ends_the_program_is_no_success(smoothcert):
    ending = typer.Typer()
    ending.command("end")(lambda: sys.exit(0))
    answer = smoothcert("", ending)
    assert answer.code == 2
    assert answer.err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(smoothcert):
    def show():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    showing = typer.Typer()
    showing.command("show")(show)
    answer = smoothcert("", showing)
    assert (answer.code, answer.err) == (1, "")


def test_code_of_the_user_that_ends_after_a_broken_pipe_of_its_own_is_no_success(smoothcert):
    def end():
        try:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        except BrokenPipeError:
            sys.exit(0)

    ending = typer.Typer()
    ending.command("end")(end)
    assert smoothcert("", ending).code == 2


def test_version(smoothcert):
    assert smoothcert("--version") == (0, f"{__version__}\n", "")


def test_without_arguments_the_help_is_shown_without_an_error(smoothcert):
    answer = smoothcert("")
    assert "Usage" in answer.out
    assert answer.err == ""


@pytest.fixture(scope="module")
def folder(on_disk, tmp_path_factory):
    """Where commands find two runs A and B, and a policy without an audit."""
    folder = tmp_path_factory.mktemp("without-torch")
    for name in ("A", "B"):
        on_disk(name, Fixed(1_000)).path.rename(folder / name)
    policy = 'inputs = 1\nalpha = 0.001\n[certified_accuracy]\n"0.25" = 20\n'
    (folder / "policy.toml").write_text(
        f'{policy}[baseline]\nrun = "B"\nmargin = 20\nradius = 0.25\n'
    )
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "map --sigma 0.5",
        "coverage --sigma 0.5 --samples 100 --pilot 20",
        f"replay {SMALL} --sigma 0.5 --samples 10000 --log-samples 10000",
        "replay A --samples 1000",
        "table A B --radii 0,0.25",
        "compare A B --radius 0.25",
        "compare A B --radius 0.25 --report compared.html",
        "gate A --policy policy.toml --junit gate.xml",
        "report A B",
        "report A --figures figures",
        "export A --out A.csv",
        "export A --out A.parquet",
        "export A --format card",
        "merge A --out merged",
    ],
)
def test_commands_without_a_model_do_not_import_torch(folder, line):
    heavy = {"torch", "pandas", "matplotlib"}
    if line.endswith(".parquet"):
        heavy.remove("pandas")  # pyarrow imports it
    script = (
        "import sys, smoothcert.cli\n"
        f"sys.argv = ['smoothcert', *{line.split()!r}]\n"
        "try:\n"
        "    smoothcert.cli.main()\n"
        "finally:\n"
        f"    imported = {heavy!r} & set(sys.modules)\n"
        "    assert not imported, imported\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "smoothcert", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize("line", ["-h", "certify -h", "table -h"])
def test_h_is_help(smoothcert, line):
    answer = smoothcert(line)
    assert answer.code == 0
    assert "Usage" in answer.out


def test_the_first_help_shows_the_options_that_most_need_and_another_one_all(smoothcert):
    first = smoothcert("certify --help")
    everything = smoothcert("certify --help-all")
    assert (first.code, everything.code) == (0, 0)
    options = set(re.findall(r"│ \*? *(--[\w-]+) ", first.out))
    assert {"--data", "--sigma", "--radii", "--out", "--help-all"} <= options
    assert len(options) <= 17
    all_options = set(re.findall(r"│ \*? *(--[\w-]+) ", everything.out))
    assert options < all_options
    assert {"--dtype", "--pilot-use", "--executor"} <= all_options
    titles = re.findall(r"╭─ ([\w ]+) ─", everything.out)
    assert titles == [
        "Options",
        "Model",
        "Inputs",
        "Noise",
        "Plan",
        "Output",
        "Speed",
        "Many machines",
    ]
