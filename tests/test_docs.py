"""Run every snippet of README and docs. If a comment says that it needs other data or a GPU, it is only parsed.

Above a block, `<!-- not run: reason -->` does the latter, and `<!-- output varies -->` runs it without comparing what
it prints. Above a block of text, `<!-- prints -->` says that the Python above it prints this. A block of Python or TOML
that begins with `# name.py` is that file. Certification is cut to a few inputs and samples.
"""

import ast
import doctest
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from benchmarks.bench import application
from benchmarks.catalog import chosen

from smoothcert.cli import app, main

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
GUIDES = [page for page in PAGES if page.parent.name != "reference"]
SMALLER = {
    "certify": ["--limit", "3", "--samples", "1000", "--batch", "200"],
}
BLOCK = re.compile(
    r"(?:<!-- (?P<remark>[^>]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


class Snippet(NamedTuple):
    where: str
    language: str
    text: str
    remark: str

    @property
    def runs(self) -> bool:
        return bool(self.language) and not self.remark.startswith("not run: ")


def _snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            f"{page.name}:{text.count(chr(10), 0, m.start('text'))}",
            m["language"],
            m["text"],
            m["remark"] or "",
        )
        for m in BLOCK.finditer(text)
    ]


def _commands(snippet: Snippet) -> list[tuple[list[str], str]]:
    """The commands of a block, each with the output that the block shows."""
    joined = snippet.text.replace("\\\n", " ")
    if snippet.language == "console":
        typed = [part.partition("\n") for part in re.split(r"^\$ ", joined, flags=re.M)[1:]]
        return [(shlex.split(line, comments=True), shown) for line, _, shown in typed]
    return [
        (words, "") for line in joined.splitlines() if (words := shlex.split(line, comments=True))
    ]


def _after_imports(arguments: list[str]) -> list[str]:
    """The command and its options, without `--import FILE` before them."""
    return arguments[2:] if arguments[0] == "--import" else arguments


def _parse(arguments: list[str]) -> None:
    name, *rest = _after_imports(arguments)
    typer.main.get_command(app).commands[name].make_context(name, rest)


def _check_other_command(words: list[str]) -> None:
    """Commands that install or build are not run, but the files that they name must exist."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words
    elif words[:3] == ["python", "-m", "benchmarks"]:
        assert words[3] in ("render", "--list") or chosen(words[3:4]), words
    elif words[:3] == ["python", "-m", "benchmarks.bench"]:
        typer.main.get_command(application).make_context("bench", words[3:])
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words
    else:
        assert words[0] in ("pip", "git", "cd", "export"), words


def _execute(snippet: Snippet, namespace: dict) -> None:
    name = re.match(r"# (\w+\.(py|toml))\n", snippet.text)
    if name:
        Path(name[1]).write_text(snippet.text)
    else:
        exec(compile(snippet.text, snippet.where, "exec"), namespace)


@pytest.fixture
def smoothcert(tmp_path, monkeypatch, capsys):
    """Run a command in a new temporary folder, in a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run(arguments: list[str]) -> str:
        monkeypatch.setattr(
            sys, "argv", ["smoothcert", *arguments, *SMALLER.get(_after_imports(arguments)[0], [])]
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capsys.readouterr()
        expected = (
            1
            if "does NOT keep its alpha" in out
            else 3
            if "undecided with so few inputs" in out
            else 0
        )
        assert exit.value.code == expected, err
        return out

    return run


def test_no_two_pages_write_to_the_same_folder():
    """Whoever follows two pages must not find the run of the first one in the way."""
    pages: dict[str, set[str]] = {}
    for page in GUIDES:
        for snippet in _snippets(page):
            for folder in re.findall(r"""out[ =]"?(runs/[\w.-]+)""", snippet.text):
                pages.setdefault(folder, set()).add(str(page.relative_to(ROOT)))
    assert {folder: found for folder, found in pages.items() if len(found) > 1} == {}


def test_readme_shows_the_two_commands_that_do_all_the_set_up():
    blocks = [snippet.text for snippet in _snippets(ROOT / "README.md") if snippet.language == "sh"]
    shown = {" ".join(line.split()[:2]) for block in blocks for line in block.splitlines()}
    assert {"make demo", "make test"} <= shown


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_works(page, smoothcert, capsys):
    namespace = {"__name__": "snippet"}
    for snippet in _snippets(page):
        if snippet.language == "python":
            ast.parse(snippet.text, snippet.where)
            if snippet.runs:
                capsys.readouterr()
                _execute(snippet, namespace)
        elif snippet.remark == "prints":
            _compare(snippet, snippet.text, capsys.readouterr().out)
        elif snippet.language == "toml":
            _execute(snippet, namespace)
        elif snippet.language in ("console", "sh", ""):
            for words, shown in _commands(snippet):
                if words[0] == "smoothcert":
                    _parse(words[1:])
                    if snippet.runs:
                        _compare(snippet, shown, smoothcert(words[1:]))
                elif snippet.language:
                    _check_other_command(words)


def _compare(snippet: Snippet, shown: str, printed: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if shown and snippet.remark != "output varies":
        assert doctest.OutputChecker().check_output(shown, printed, flags), (
            f"{snippet.where} prints\n{printed}"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor and path.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            assert anchor in [
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
            ], anchor


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path, monkeypatch, capsys):
    if example.name == "verona_epsilon.py":  # `tests/test_examples.py` stands in for the package
        pytest.importorskip("ada_verona")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_page_of_commands_is_that_of_the_source(tmp_path):
    written = tmp_path / "commands.md"
    options = ["--name", "smoothcert", "--title", "Commands", "--output", str(written)]
    subprocess.run(
        [sys.executable, "-m", "typer", "smoothcert.cli", "utils", "docs", *options], check=True
    )
    committed = ROOT / "docs" / "reference" / "commands.md"
    assert committed.read_text(encoding="utf-8") == written.read_text(encoding="utf-8"), (
        "run `make commands`"
    )


def _listed() -> set[str]:
    """The names on the page of the Python interface: names with their modules, or whole modules."""
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    return set(re.findall(r"^::: (\S+)$", page, re.M))


@pytest.mark.parametrize(
    "package",
    ["", ".data", ".executors", ".models", ".models.denoisers", ".noises", ".plans", ".training"],
)
def test_the_page_of_the_python_interface_lists_every_public_name(package):
    module = import_module(f"smoothcert{package}")
    names = getattr(module, "__all__", None) or [
        name for name in vars(module) if not name.startswith("_")
    ]
    public = {name: getattr(module, name) for name in names}
    defined = {f"{value.__module__}.{name}" for name, value in public.items() if callable(value)}
    assert not {
        name
        for name in defined
        if name not in _listed() and name.rpartition(".")[0] not in _listed()
    }


def test_what_the_page_of_the_python_interface_lists_exists():
    for listed in _listed():
        home, _, name = listed.rpartition(".")
        assert hasattr(import_module(home), name) or importlib.util.find_spec(listed), listed
