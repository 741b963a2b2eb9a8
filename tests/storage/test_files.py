"""Files: what is no regular file is neither replaced nor waited for."""

import os

import pytest

from widemax.storage.files import atomic_write, open_to_read, read_text


def test_a_pipe_is_neither_replaced_nor_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(ValueError, match="pipe is no regular file"),
        atomic_write(tmp_path / "pipe"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="pipe is no regular file"),
        open_to_read(tmp_path / "pipe"),
    ):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path, there):
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert read_text(target) == read_text(link) == "new"
    assert [path.name for path in target.parent.iterdir()] == ["target"]
