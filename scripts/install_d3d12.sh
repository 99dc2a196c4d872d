#!/bin/sh
# Unpacks libvkd3d 2 (Direct3D 12 over Vulkan) and a software Vulkan driver that it works with into
# the folder $1, with the C library that they need. They come from Debian, through a view of apt of
# their own: nothing is installed, and nothing under /etc/apt changes. Exits with 77, and says why,
# where that cannot be done.
#
# Mesa is that of trixie: of libvkd3d's texel buffers, 22.3 reads some wrong, and 26.1 ends the
# process where a shader's loop hides that a fetch's level is 0.
set -eu
folder=$1

skip() {
    echo "Direct3D 12 cannot be had here: $*" >&2
    exit 77
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    skip "libvkd3d 2 is unpacked from Debian's packages, and this is no Debian."
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
# The mirror that this machine uses for Debian itself.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v codename="$codename" '$2 == codename && $3 == "main" { print $1; exit }')
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$mirror" ] && [ -e "$keyring" ] || skip "apt has no mirror of Debian's main packages."

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"
: >"$work/status" # as if nothing were installed, so that every library comes along
for suite in trixie testing; do
    echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$work/sources.list"
private_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State="$work" -o Dir::State::lists="$work/lists" \
        -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 "$@"
}
private_apt update >&2 || skip "the indexes of Debian's packages could not be fetched."
private_apt -y --download-only --no-install-recommends install \
    libvkd3d-utils1/testing mesa-vulkan-drivers/trixie >&2 || skip "packages could not be fetched."
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
# Of 320 MB, what a software driver needs.
rm -rf "$work"/root/usr/share/doc "$work"/root/usr/share/locale "$work"/root/usr/share/man
find "$work"/root/usr/lib -name 'libvulkan_*.so' ! -name libvulkan_lvp.so -delete
find "$work"/root/usr/share/vulkan/icd.d -name '*.json' ! -name 'lvp_icd*.json' -delete
chmod 755 "$work/root"
rm -rf "$folder"
mv "$work/root" "$folder"
