#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

# A machine of our own making: all its programs are links, so that some can be taken away.
setup() {
  checkout
  unset ECG_PYTHON
  TOOLS="$BATS_TEST_TMPDIR/tools"
  mkdir "$TOOLS"
  ln -s /usr/bin/* /bin/* "$TOOLS/" 2>/dev/null || true
  rm -f "$TOOLS"/{apt-get,sudo,id,mpirun,mpicc,g++,python3*,bats,shellcheck,shfmt,git,make,cmake}
  export PATH="$STUBS:$TOOLS"
  for program in mpirun mpicc g++ git make bats shellcheck shfmt; do stub "$program" 'echo "stub 1.0"'; done
  stub python3.11 'case "$*" in
    *_base_executable*) echo "$STUBS/python3.11" ;;
    *"-m venv"*) mkdir -p "$3/bin" && cp "$STUBS/env-python" "$3/bin/python" ;;
    *platform*) echo 3.11.99 ;;
    *version_info*) echo python3.11 ;;
    *) exit 0 ;;
  esac'
  stub env-python 'case "$*" in *verify_environment*) echo "torch=1"; exit "${VERIFY_STATUS:-0}" ;; esac'
  stub id 'echo 0'
  stub apt-get 'exit 100'
  printf '#!/usr/bin/env bash\nsleep 1; echo wheel.whl\n' >bin/build-horovod
}

environments() { find "$ECG_CACHE/env" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }

@test "without a Python 3.11 or 3.12 nothing starts" {
  stub python3.11 'exit 1'
  run --separate-stderr bin/setup
  refused "3.11 or 3.12 is needed"
  [[ ! -e "$ECG_CACHE/env" ]]
}

@test "without rights the administrator's line is printed" {
  rm "$STUBS"/{mpirun,mpicc}
  stub id 'echo 1000'
  run --separate-stderr bin/setup
  refused "an administrator must run: apt-get update && apt-get install -y --no-install-recommends openmpi-bin libopenmpi-dev"
  [[ "$(grep -c apt-get "$CALLS")" == 0 && "$(environments)" == 0 ]]
}

@test "a sudo that would ask for a password is no right" {
  rm "$STUBS/g++"
  stub id 'echo 1000'
  stub sudo 'exit 1'
  run --separate-stderr bin/setup
  refused "--no-install-recommends g++"
}

@test "on a system without apt the packages are named" {
  rm "$STUBS"/{mpirun,apt-get}
  run --separate-stderr bin/setup
  refused "no apt-get; install what these Debian packages hold, then try again: openmpi-bin"
}

@test "an install that fails shows the end of its log" {
  rm "$STUBS/mpirun"
  stub apt-get 'echo "E: no route to host"; exit 100'
  run --separate-stderr bin/setup
  [[ "$status" == 1 && "$stderr" == *"E: no route to host"* && "$stderr" == *"error: system packages failed (status 100)"* ]]
}

@test "an install that brings nothing is not believed" {
  rm "$STUBS/mpirun"
  stub apt-get 'exit 0'
  run --separate-stderr bin/setup
  [[ "$status" == 1 && "$stderr" == *"still missing: openmpi-bin"* ]]
}

@test "missing packages are installed, through sudo when it asks nothing, and are named before" {
  rm "$STUBS"/{mpirun,shfmt}
  stub id 'echo 1000'
  stub sudo 'shift; exec "$@"'
  stub apt-get 'if [[ "$*" == *install* ]]; then cp "$STUBS/mpicc" "$STUBS/mpirun"; cp "$STUBS/mpicc" "$STUBS/shfmt"; fi'
  run --separate-stderr bin/setup --dev
  echo "$stderr"
  [[ "$status" == 0 && "$stderr" == *"to install by apt: openmpi-bin shfmt"* ]]
  grep -q 'sudo -n env DEBIAN_FRONTEND=noninteractive apt-get .* openmpi-bin shfmt$' "$CALLS"
}

@test "a step that fails leaves nothing that passes for an environment" {
  VERIFY_STATUS=1 run --separate-stderr bin/setup
  [[ "$status" == 1 && -z "$output" && "$stderr" == *"failed"* && ! -e "$(echo "$ECG_CACHE"/env/*/.ready)" ]]
  run --separate-stderr bin/setup
  [[ "$status" == 0 && "$(environments)" == 1 && "$(grep -c -- '-m venv' "$CALLS")" == 2 ]]
}

@test "two setups at once build one environment" {
  bin/setup 2>"$BATS_TEST_TMPDIR/one" 3>&- &
  bin/setup 2>"$BATS_TEST_TMPDIR/two" 3>&-
  wait $!
  [[ "$(grep -c -- '-m venv' "$CALLS")" == 1 ]]
  grep -qh 'waiting for it' "$BATS_TEST_TMPDIR"/{one,two}
  grep -q '^ready after' "$BATS_TEST_TMPDIR/one"
  grep -q '^ready after' "$BATS_TEST_TMPDIR/two"
}

@test "a second setup does nothing, in less than a second" {
  bin/setup 2>/dev/null
  : >"$CALLS"
  local before=${EPOCHREALTIME/./}
  run --separate-stderr bin/setup
  (((${EPOCHREALTIME/./} - before) < 2000000)) # twice the promise, since others use this machine too
  [[ "$status" == 0 && -z "$output" && "$stderr" == *"torch=1"* ]]
  run ! grep -qE -- '-m venv|-m pip|apt-get' "$CALLS"
}

@test "other pins make another environment; the old one stays" {
  bin/setup 2>/dev/null
  echo '# changed' >>requirements/base.txt
  bin/setup 2>/dev/null
  [[ "$(environments)" == 2 ]]
}

@test "pins are complete, exact, and name no host and no build" {
  local file
  for file in requirements/*.txt; do
    run ! grep -vE '^(#.*|)$|^[A-Za-z0-9._-]+(\[[a-z,]+\])?==[0-9][A-Za-z0-9.]*( --hash=sha256:[0-9a-f]{64})?$' "$file"
  done
  # One version per package, over all files that meet in one environment. In the CUDA image, cuda.txt's torch takes the
  # place of train.txt's; TensorFlow has an environment of its own.
  local twice='!/^#/ && NF == 2 { name = tolower($1); if (name in seen && seen[name] != $2) print name; seen[name] = $2 }'
  run awk -F'==' "$twice" requirements/{base,build,dev,horovod,nodeps,train}.txt
  [[ "$status" == 0 && -z "$output" ]]
  run awk -F'==' "$twice" requirements/{base,build,horovod,nodeps,cuda}.txt <(grep -v '^torch==' requirements/train.txt)
  [[ "$status" == 0 && -z "$output" ]]
}
