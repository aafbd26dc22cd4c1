"""Files are written whole or not at all."""

import errno
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.files import write_whole


def test_a_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "run.pickle"
    path.write_text("old")
    write_whole(path, b"new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("run.pickle", "new")]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.pickle"
    path.write_text("old")

    def full(part: Path, content: bytes) -> None:
        part.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PlannerError, match=r"run\.pickle' cannot be written \(No space left on device\)$"):
        write_whole(path, b"new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("run.pickle", "old")]


@pytest.mark.parametrize("place", ["missing/run.pickle", "file/run.pickle", "folder", "x" * 300])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlannerError, match="cannot be written"):
        write_whole(tmp_path / place, b"new")
