#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

@test "caches go; data, results and what is not ours stay" {
  mkdir -p python/ecg_train/__pycache__ .pytest_cache .ruff_cache "$ECG_DATA" "$ECG_RESULTS" python/other
  dataset mitdb
  run --separate-stderr bin/clean
  [[ "$status" == 0 && -z "$output" ]]
  [[ ! -e python/ecg_train/__pycache__ && ! -e .pytest_cache && ! -e .ruff_cache ]]
  [[ -d python/other && -e "$ECG_DATA/mitdb/manifest.json" && -d "$ECG_RESULTS" ]]
}
