#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

@test "an unknown format is refused" {
  run --separate-stderr bin/report FORMAT=xml
  refused "choose from: table csv json markdown"
  FORMAT='' run --separate-stderr bin/report
  refused FORMAT
}

@test "the status of the analysis is ours" {
  STUB_STATUS=3 run --separate-stderr bin/report
  [[ "$status" == 3 ]]
}

@test "format and further arguments are handed on whole" {
  run --separate-stderr bin/report FORMAT=csv --strict 'a  b'
  [[ "$status" == 0 && "$output" == "python said: -m analysis report --results $ECG_RESULTS --format csv --strict a  b" ]]
}
