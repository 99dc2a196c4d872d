#!/bin/sh
# Makes the virtual environment $2 with the Python $1; installs Debian's packages for it when they
# are missing and we may.
set -eu
python=$1 venv=$2

may_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

if ! command -v "$python" >/dev/null || ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if ! may_install; then
        echo "$python with the venv module is needed: install Python 3.11 or later" \
             "(on Debian: apt-get install python3 python3-venv)." >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y python3 python3-venv >/dev/null
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed; $python is $("$python" -V). Set PYTHON=python3.11 or so." >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# Dependency groups (pip install --group) came with pip 25.1.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
