#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  ENVIRONMENT="$BATS_TEST_TMPDIR/environment"
  mkdir -p "$ENVIRONMENT/bin" "$BATS_TEST_TMPDIR/archive/horovod-0/horovod/torch"
  stub python 'while (($# > 1)); do
      case "$1" in
        -d) cp "$ARCHIVE" "$2/"; exit ;;
        -w) mkdir -p "$2" && cat "$3/CMakeLists.txt" "$3/horovod/torch/CMakeLists.txt" >"$2/horovod-0-py3.whl"; exit "${WHEEL_STATUS:-0}" ;;
      esac
      shift
    done
    echo "3.11.99 ${TORCH:-2.13.0}"'
  cp "$STUBS/python" "$ENVIRONMENT/bin/python"
  export ARCHIVE="$BATS_TEST_TMPDIR/horovod-0.tar.gz"
  archive 14
}

# archive STANDARD: an archive whose CMake files ask for that C++ standard.
archive() {
  local folder="$BATS_TEST_TMPDIR/archive"
  echo "set(CMAKE_CXX_STANDARD $1)" >"$folder/horovod-0/CMakeLists.txt"
  echo "    set(CMAKE_CXX_STANDARD $1)" >"$folder/horovod-0/horovod/torch/CMakeLists.txt"
  tar -czf "$ARCHIVE" -C "$folder" horovod-0
}

wheel_files() { find "$ECG_CACHE" -mindepth 2 | wc -l; }

@test "anything but an environment is refused" {
  run --separate-stderr bin/build-horovod
  refused "folder of a Python environment"
  run --separate-stderr bin/build-horovod /nowhere
  refused "folder of a Python environment"
}

@test "an archive that the patch does not fit fails, and nothing is left" {
  archive 11
  run --separate-stderr bin/build-horovod "$ENVIRONMENT"
  [[ "$status" == 1 && -z "$output" && "$stderr" == *"C++17 patch"* && "$(wheel_files)" == 0 ]]
}

@test "a compilation that fails leaves nothing" {
  WHEEL_STATUS=1 run --separate-stderr bin/build-horovod "$ENVIRONMENT"
  [[ "$status" == 1 && -z "$output" && "$(wheel_files)" == 0 ]]
}

@test "the patch is in what is compiled, and the wheel is made once" {
  run --separate-stderr bin/build-horovod "$ENVIRONMENT"
  [[ "$status" == 0 && -e "$output" && "$(grep -c 'STANDARD 17' "$output")" == 2 ]]
  local first=$output
  run --separate-stderr bin/build-horovod "$ENVIRONMENT"
  [[ "$output" == "$first" && "$(grep -c 'pip wheel' "$CALLS")" == 1 ]]
}

@test "another torch, compiler or MPI makes another wheel" {
  bin/build-horovod "$ENVIRONMENT" 2>/dev/null
  TORCH=2.13.0+cu130 bin/build-horovod "$ENVIRONMENT" 2>/dev/null
  stub mpirun 'echo "mpirun (Open MPI) 9.9"'
  bin/build-horovod "$ENVIRONMENT" 2>/dev/null
  stub g++ 'echo 99.1'
  bin/build-horovod "$ENVIRONMENT" 2>/dev/null
  HOROVOD_GPU_OPERATIONS=NCCL bin/build-horovod "$ENVIRONMENT" 2>/dev/null
  [[ "$(grep -c 'pip wheel' "$CALLS")" == 5 ]]
}
