#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  git init -q .
  stub ruff 'exit 0'
}

@test "a finding in a new bash file without an ending is found" {
  printf '#!/usr/bin/env bash\nrm $1\n' >new-command
  run --separate-stderr bin/lint
  [[ "$status" == 1 && "$output" == *"SC2086"* ]]
}

@test "a wrong layout is found" {
  stub shellcheck 'exit 0'
  printf '#!/usr/bin/env bash\nif true; then\n      echo x\nfi\n' >new-command
  run --separate-stderr bin/lint
  [[ "$status" == 1 && "$output" == *"new-command"* ]]
}

@test "a finding of ruff is ours" {
  stub shellcheck 'exit 0'
  stub ruff 'exit 1'
  run --separate-stderr bin/lint
  [[ "$status" == 1 ]]
}

@test "a linter that is missing fails in CI and warns at a desk" {
  rm "$STUBS/ruff"
  stub shellcheck 'exit 0'
  if command -v ruff >/dev/null; then skip "ruff is on PATH"; fi
  run --separate-stderr bin/lint
  [[ "$status" == 0 && "$stderr" == *"warning: ruff is not installed"* ]]
  CI=true run --separate-stderr bin/lint
  [[ "$status" == 1 ]]
}

@test "a search that finds next to nothing is an error, not a success" {
  printf '*\n' >.gitignore
  run --separate-stderr bin/lint
  [[ "$status" == 1 && "$stderr" == *"its search is broken"* ]]
}
