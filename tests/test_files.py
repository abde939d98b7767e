from contextlib import suppress
from pathlib import Path

import pytest
from tests.refusals import refused

from smoothcert._files import exclusive, write_whole
from smoothcert.errors import InvalidInput


def test_a_folder_is_made_and_belongs_to_one_at_a_time(tmp_path):
    with exclusive(tmp_path / "a" / "b") as folder:
        assert folder.is_dir()
        with refused("folder-in-use", folder=folder), exclusive(folder):
            pass
    with exclusive(folder):
        pass


def test_a_file_is_written_with_its_folder_and_nothing_beside_it(tmp_path):
    write_whole(tmp_path / "new" / "file", b"content")
    assert [path.read_bytes() for path in (tmp_path / "new").iterdir()] == [b"content"]


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInput, match=r"cannot write .*file: No space left on device"):
        write_whole(path, b"new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "old")]


def test_links_stay_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_link_in_the_way_of_writing_is_not_followed(tmp_path):
    (tmp_path / "weights").write_bytes(b"weights")
    (tmp_path / "page.partial").symlink_to(tmp_path / "weights")
    write_whole(tmp_path / "page", b"page")
    assert (tmp_path / "page").read_bytes() == b"page"
    assert (tmp_path / "weights").read_bytes() == b"weights"


def test_devices_and_folders_are_not_replaced(tmp_path):
    write_whole("/dev/null", b"content")
    assert not Path("/dev/null").is_file()
    with pytest.raises(InvalidInput, match=r"cannot write .*: Is a directory"):
        write_whole(tmp_path, b"content")
    with pytest.raises(InvalidInput, match=r"cannot write .*: Is a directory"):
        write_whole("/", b"content")


def test_an_error_leaves_no_new_empty_folder_behind(tmp_path):
    def fail_in(folder, *names):
        with suppress(ValueError), exclusive(folder):
            for name in names:
                (folder / name).touch()
            raise ValueError
        return sorted(path.name for path in tmp_path.iterdir())

    assert fail_in(tmp_path / "new" / "inner") == []
    assert fail_in(tmp_path / "used", "results") == ["used"]
    (tmp_path / "mine").mkdir()
    assert fail_in(tmp_path / "mine") == ["mine", "used"]
