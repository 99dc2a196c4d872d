"""Builds `libcrossinfer`, and puts its header beside it.

    python -m crossinfer.embedding.build FOLDER

Needs cffi and setuptools (`pip install 'crossinfer[embedding]'`), a C compiler, and the headers and
the shared library of the Python that runs this; the library will use that Python unless told
otherwise.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import crossinfer

NATIVE = Path(__file__).parent / "native"
HEADER = NATIVE / "crossinfer.h"
_MODULE = "crossinfer_native"
_SOURCES = ("library.c", "calls.c", "host_python.c", "failure.c", "platform.c")

_SOURCE = """
#include "inner.h"
#include "failure.h"
#include "host_python.h"
static int cffi_start_python(void);
int cx_fill_inner(void) { return cffi_start_python(); }
"""

_STARTUP = f"""
from crossinfer.embedding import entries
from {_MODULE} import ffi, lib
entries.define(ffi, lib)
"""


def build(folder: Path) -> Path:
    """Compile `libcrossinfer` into `folder`; its path.

    Raises ImportError without cffi, and what setuptools raises when the compiler fails.
    """
    from cffi import FFI  # not a dependency of the package

    folder.mkdir(parents=True, exist_ok=True)
    ffi: Any = FFI()
    ffi.embedding_api("")
    ffi.cdef(f'extern "Python+C" {{ {_declarations()} }} void cx_set_error(const char *text);')
    ffi.embedding_init_code(_STARTUP)
    macros = [
        ("CROSSINFER_BUILDING", "1"),
        ("CROSSINFER_BUILT_VERSION", _c_string(crossinfer.__version__)),
        ("CROSSINFER_BUILT_WITH", _c_string(sys.executable)),
    ]
    posix = sys.platform != "win32"
    ffi.set_source(
        _MODULE,
        _SOURCE,
        sources=[str(NATIVE / name) for name in _SOURCES],
        include_dirs=[str(NATIVE)],
        define_macros=macros,
        extra_compile_args=["-fvisibility=hidden"] if posix else [],
        runtime_library_dirs=[sysconfig.get_config_var("LIBDIR")] if posix else [],
        py_limited_api=False,
    )
    with tempfile.TemporaryDirectory(prefix="crossinfer-") as scratch:
        built = Path(ffi.compile(tmpdir=scratch, target="libcrossinfer.*"))
        target = folder / built.name
        shutil.copy(built, target)
    shutil.copy(HEADER, folder)
    return target


def _declarations() -> str:
    return re.sub(r"/\*.*?\*/", "", (NATIVE / "inner.h").read_text(), flags=re.DOTALL)


def _c_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def main() -> None:
    """The command line; see the module's description."""
    parser = argparse.ArgumentParser(
        prog="python -m crossinfer.embedding.build", description="Build libcrossinfer."
    )
    parser.add_argument("folder", type=Path, help="where the library and its header go")
    print(build(parser.parse_args().folder))


if __name__ == "__main__":
    main()
