#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  mkdir -p tests/bats tests/python
  local command
  for command in setup lint; do
    printf '#!/usr/bin/env bash\necho "%s $*" >>"$CALLS"\n[[ "${FAILING:-}" != %s ]]\n' "$command" "$command" >"bin/$command"
  done
  stub bats '[[ "${FAILING:-}" != bats ]]'
  export ECG_TEST_CLUSTER=0
}

@test "a part that fails does not keep the others from running, but shows in the status" {
  local part
  for part in lint bats; do
    rm -f "$CALLS"
    FAILING=$part run --separate-stderr bin/test
    [[ "$status" == 1 && "$stderr" == *"error: failed: $part" ]]
    [[ "$(cut -d' ' -f1 "$CALLS" | tr '\n' ' ')" == "setup lint bats python " ]]
  done
  STUB_STATUS=1 run --separate-stderr bin/test
  [[ "$status" == 1 && "$stderr" == *"error: failed: pytest" ]]
}

@test "the cluster's tests run after the others, where there can be a cluster" {
  unset ECG_TEST_CLUSTER
  stub unshare 'exit "${STUB_UNSHARE:-0}"'
  printf '#!/usr/bin/env bash\necho "install $*" >>"$CALLS"\n' >bin/install-apptainer
  ((EUID == 0)) || skip "it needs root"
  run --separate-stderr bin/test
  [[ "$status" == 0 && "$(tail -n 2 "$CALLS" | tr '\n' ' ')" == "install  bats tests/cluster " ]]
  STUB_UNSHARE=1 run --separate-stderr bin/test
  [[ "$status" == 0 && "$stderr" == *"the tests on a real cluster did not run: the kernel"* ]]
  CI=true STUB_UNSHARE=1 run --separate-stderr bin/test
  [[ "$status" == 1 && "$stderr" == *"failed: cluster"* ]]
}

@test "a setup that fails ends it" {
  FAILING=setup run --separate-stderr bin/test
  [[ "$status" == 1 && "$(<"$CALLS")" == "setup --dev" ]]
}

@test "all well: status 0; arguments reach pytest" {
  PYTEST_ARGS='-k "order or shards"' run --separate-stderr bin/test -x
  [[ "$status" == 0 && "$output" == "python said: -m pytest -q -rs -k order or shards -x tests/python" ]]
  grep -q 'pytest -q -rs -k order\\ or\\ shards -x' "$CALLS"
}
