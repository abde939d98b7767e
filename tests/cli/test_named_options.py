"""Messages name options that exist."""

import ast
import re
from pathlib import Path

import typer

from smoothcert.cli import app

SOURCE = Path(__file__).parents[2] / "src" / "smoothcert"
OF_COMPILERS = {"--std", "--gpu-architecture"}
IN_PYTHON_ALONE = {"progress"}
"""Parameters of functions that messages name to users of Python alone."""


def options():
    """All options of all commands."""
    group = typer.main.get_command(app)
    commands = [group, *group.commands.values()]
    return {name for command in commands for one in command.params for name in one.opts}


def test_every_option_in_a_text_of_the_package_exists():
    known = options() | {"--help"} | OF_COMPILERS
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            texts = []
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts = re.findall(r"(?<![\w-])--[a-z][\w-]+\w", node.value)
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if called and node.func.id == "setting" and isinstance(node.args[0], ast.Constant):
                name = node.args[0].value
                if name not in IN_PYTHON_ALONE:
                    texts = ["--" + name.replace("_", "-")]
            for text in texts:
                assert text in known, f"{file.relative_to(SOURCE)}: {text}"


def test_no_message_needs_a_clone():
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pip install -e|\bmake (demo|test|docs)\b", text), file
