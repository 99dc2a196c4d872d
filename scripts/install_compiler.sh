#!/bin/sh
# Installs a C compiler and Python's headers for the tests of the C interface, where we may. Without
# them these tests skip and say so.
set -eu
python=$1

has_python_h() {
    "$python" -c 'import os, sysconfig
raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

if command -v cc >/dev/null && command -v c++ >/dev/null && has_python_h; then
    exit 0
fi
packages="gcc g++ libc6-dev python3-dev"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "No C compiler with the headers of $python was found: the tests of the C interface will be" \
         "skipped. On Debian: apt-get install $packages" >&2
    exit 0
fi
apt-get update -qq || true # the install tells
# shellcheck disable=SC2086 # the packages are words
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $packages >/dev/null ||
    echo "$packages cannot be installed: the tests of the C interface will be skipped." >&2
