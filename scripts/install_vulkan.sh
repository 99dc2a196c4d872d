#!/bin/sh
# Installs a software Vulkan driver and the validation layers for the tests, where we may. Without
# them the Vulkan tests skip and say so.
set -eu
PATH=$PATH:/usr/sbin:/sbin # of ldconfig, which users' paths lack on Debian

if ldconfig -p | grep -q libvulkan.so.1 && ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 &&
    ls /usr/share/vulkan/explicit_layer.d/*validation*.json >/dev/null 2>&1; then
    exit 0
fi
packages="libvulkan1 mesa-vulkan-drivers vulkan-validationlayers"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "No Vulkan driver with validation layers was found: the Vulkan tests will be skipped." \
         "On Debian: apt-get install $packages" >&2
    exit 0
fi
apt-get update -qq || true # the install tells
# shellcheck disable=SC2086 # the packages are words
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $packages >/dev/null ||
    echo "$packages cannot be installed: the Vulkan tests will be skipped." >&2
