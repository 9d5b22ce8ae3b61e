# Installs what building and testing need and is missing: Debian 12 or Ubuntu 24.04, as root or
# with sudo.  Sourced by demo.sh, test.sh and fuzz.sh; safe to repeat.

build_packages=(g++ meson ninja-build pkg-config liburing-dev libtbb-dev libcli11-dev doctest-dev
                libsimdjson-dev nlohmann-json3-dev libpcre2-dev libxxhash-dev libfmt-dev)
test_packages=(strace util-linux e2fsprogs xxhash python3-xxhash)
fuzz_packages=(clang libclang-rt-dev)

# Usage: install_missing PACKAGE...
install_missing() {
  local missing=() package
  for package in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: these packages are missing: ${missing[*]}; install them as root, or install sudo" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}" >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
}

# Usage: build FOLDER "MESON OPTIONS" [TARGET...]   configures once, then builds what has changed.
build() {
  local folder=$1 options=$2
  shift 2
  if [ ! -f "$folder/build.ninja" ]; then
    echo "setup: configuring $folder" >&2
    # shellcheck disable=SC2086  # options are words
    meson setup "$folder" $options >&2 || return
  fi
  echo "setup: building $folder" >&2
  ninja -C "$folder" "$@" >&2
}
