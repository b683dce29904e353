# shellcheck shell=bash
# System packages: what is missing, and getting it. Needs common.sh.

# missing_packages PYTHON [dev]: Debian's names of the packages whose programs are not here, one a line.
missing_packages() {
  local python=$1 version program package table
  version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  table="mpirun:openmpi-bin mpicc:libopenmpi-dev g++:g++ make:make taskset:util-linux git:git"
  if [[ "${2:-}" == dev ]]; then table+=" bats:bats shellcheck:shellcheck shfmt:shfmt"; fi
  for package in $table; do
    program=${package%%:*}
    command -v "$program" >/dev/null || printf '%s\n' "${package#*:}"
  done
  "$python" -c 'import ensurepip, venv' 2>/dev/null || printf '%s-venv\n' "$version"
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || printf '%s-dev\n' "$version"
}

# install_packages PACKAGE...: by apt as root, or through sudo if that needs no password; else say what to ask for.
install_packages() {
  local sudo=()
  command -v apt-get >/dev/null ||
    die "this system has no apt-get; install what these Debian packages hold, then try again: $*"
  if (($(id -u) != 0)); then
    if ! sudo -n true 2>/dev/null; then
      die "system packages are missing; an administrator must run: apt-get update && apt-get install -y --no-install-recommends $*"
    fi
    sudo=(sudo -n)
  fi
  log "  system packages to install by apt: $*"
  # A lock timeout, since a fresh machine is often still busy with its own updates.
  step "package lists" try "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 update
  step "system packages" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

# Stale package lists may still do: the install is what counts.
try() { "$@" || true; }
