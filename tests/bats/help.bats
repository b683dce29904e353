#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

@test "every command answers --help and -h on stdout" {
  local command flag count=0
  for command in bin/*; do
    if [[ -d "$command" ]]; then continue; fi
    for flag in --help -h; do
      run --separate-stderr "$command" "$flag"
      echo "$command $flag: $status $stderr"
      [[ "$status" == 0 && "$output" == *"Usage: $command"* && -z "$stderr" ]]
    done
    count=$((count + 1))
  done
  ((count >= 13))
  [[ ! -e "$CALLS" ]]
}

@test "every command refuses an argument that it does not know" {
  local command
  for command in data inspect run lint setup bench clean demo; do
    run --separate-stderr "bin/$command" --nonsense
    refused "'--nonsense'"
  done
}

@test "every command starts alike" {
  local command
  for command in bin/*; do
    if [[ -d "$command" ]]; then continue; fi
    echo "$command"
    [[ -x "$command" && "$(head -n 1 "$command")" == '#!/usr/bin/env bash' ]]
    [[ "$(grep -vE '^#' "$command" | head -n 1)" == 'set -euo pipefail' ]]
    [[ "$(tail -n 1 "$command")" == 'main "$@"' ]]
  done
}

@test "commands stay under 100 lines, libraries under 200" {
  local file
  for file in bin/*; do [[ -d "$file" ]] || (($(wc -l <"$file") < 100)); done
  for file in bin/lib/* bin/lib/*/*; do [[ -d "$file" ]] || (($(wc -l <"$file") < 200)); done
}

@test "ECG_TRACE=1 shows what a command does" {
  ECG_TRACE=1 run --separate-stderr bin/clean
  [[ "$status" == 0 && "$stderr" == *"+ main"* ]]
}
