# shellcheck shell=bash
# Which Python environment belongs to this checkout and this machine. Needs common.sh.

# The interpreter that environments are made from: prints its real path.
find_python() {
  local name path
  for name in ${ECG_BASE_PYTHON:+"$ECG_BASE_PYTHON"} python3.11 python3 python3.12; do
    # sys._base_executable sees through the shims of version managers and through virtual environments.
    path=$("$name" -c 'import sys; v = sys.version_info
print(getattr(sys, "_base_executable", sys.executable)) if v[:2] in ((3, 11), (3, 12)) else sys.exit(1)' 2>/dev/null) || continue
    printf '%s\n' "$path"
    return
  done
  die "no usable Python: 3.11 or 3.12 is needed, as python3.11, python3.12 or python3 on PATH (or ECG_BASE_PYTHON=/path/to/it)"
}

python_version() { "$1" -c 'import platform; print(platform.python_version())'; }

# First lines of the programs whose exchange makes compiled parts stale.
tool_versions() {
  uname -m
  { mpirun --version 2>/dev/null || echo no-mpi; } | head -n 1
  { "${CXX:-g++}" -dumpfullversion -dumpversion 2>/dev/null || echo no-compiler; } | head -n 1
  printf '%s\n' "gpu-operations ${HOROVOD_GPU_OPERATIONS:-none}"
}

# Raise it when bin/setup builds environments in another way.
ENVIRONMENT_RECIPE=1

digest() { sha256sum | cut -c1-16; }

# The environment's folder: its name changes with everything that decides what is in it.
environment_dir() {
  local python
  python=$(find_python)
  printf '%s/env/%s\n' "$ECG_CACHE" "$({
    cat "$ECG_ROOT"/requirements/{build,base,train,nodeps}.txt "$ECG_ROOT/bin/build-horovod"
    printf '%s\n' "$python"
    python_version "$python"
    tool_versions
    printf '%s\n' "$ENVIRONMENT_RECIPE"
  } | digest)"
}

dev_marker() { printf '.ready-dev-%s\n' "$(digest <"$ECG_ROOT/requirements/dev.txt")"; }

# require_environment [dev]: set ECG_PYTHON to the interpreter to run, and put its programs first on PATH.
require_environment() {
  local dir marker=.ready
  if [[ -n "${ECG_PYTHON:-}" ]]; then
    command -v "$ECG_PYTHON" >/dev/null || die "ECG_PYTHON='$ECG_PYTHON' is not a program"
    ECG_PYTHON=$(command -v "$ECG_PYTHON")
  else
    dir=$(environment_dir)
    if [[ "${1:-}" == dev ]]; then marker=$(dev_marker); fi
    [[ -e "$dir/$marker" ]] || die "the Python environment is not built; run: make setup${1:+ (bin/setup --dev)}"
    ECG_PYTHON=$dir/bin/python
  fi
  export ECG_PYTHON
  PATH=$(dirname "$ECG_PYTHON"):$PATH
}
