#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

# An Apptainer that builds a file whose labels are its arguments, and reads them back.
setup() {
  checkout
  cp "$BATS_TEST_DIRNAME"/../../{Apptainer.def,LICENSE} .
  cp -R "$BATS_TEST_DIRNAME"/../../{analysis,data_prep} .
  mkdir -p python
  stub apptainer 'case "$1" in
      build)
        if [[ -e "$CALLS.fail" ]]; then echo "FATAL: no luck" >&2; exit 255; fi
        target=${*: -2:1}
        : >"$target"
        for word in "$@"; do case "$word" in key=* | package_key=* | device=*) echo "ecg.${word/=/: }" >>"$target" ;; esac done ;;
      inspect) cat "${*: -1}" ;;
      pull) exit 1 ;;
    esac'
  stub unshare 'while [[ "$1" == --* ]]; do shift; done; exec "$@"'
  stub newuidmap 'exit 0'
  stub debootstrap 'exit 0'
  stub apt-get 'echo "http://mirror.example/debian Debian main"'
  stub df 'printf "Filesystem 1024-blocks Used Available Capacity Mounted\nx 1 1 %s 1%% /\n" "${FREE:-99000000}"'
  unset ECG_IMAGE
  if [[ "$EUID" == 0 && "$(head -n 1 /etc/subuid)" != root:* ]]; then skip "this would change /etc/subuid"; fi
}

@test "without Apptainer the ways to one are named" {
  local name
  rm "$STUBS/apptainer"
  mkdir "$BATS_TEST_TMPDIR/few"
  for name in bash env cat sed awk grep sort uname dirname basename date tr mkdir mktemp rm sha256sum find xargs cut head python3; do
    ln -s "$(command -v "$name")" "$BATS_TEST_TMPDIR/few/$name"
  done
  PATH="$STUBS:$BATS_TEST_TMPDIR/few" run --separate-stderr bin/image
  [[ "$status" == 2 && -z "$output" && "$stderr" == "error: Apptainer is not installed; "*"bin/install-apptainer"*ECG_IMAGE* ]]
}

@test "bad requests are refused before anything is made" {
  run --separate-stderr bin/image DEVICE=tpu
  refused "DEVICE=tpu"
  run --separate-stderr bin/image TENSORFLOW=1
  refused "requirements/tensorflow.txt"
  run --separate-stderr bin/image GPUS=4
  refused "unknown argument"
  [[ ! -e "$ECG_CACHE" ]]
}

@test "too little space is told before the work" {
  FREE=1000000 run --separate-stderr bin/image DEVICE=cpu
  [[ "$status" == 2 && "$stderr" == *"GB free, and the build needs 12"*ECG_CACHE* && ! -e images/ecg-train-cpu.sif ]]
}

@test "built once, with its digest beside it; the same again is nothing; a changed package only lays the bundle on top" {
  run --separate-stderr bin/image DEVICE=cpu
  echo "$stderr"
  [[ "$status" == 0 && -s images/ecg-train-cpu.sif ]]
  (cd images && sha256sum --check --quiet ecg-train-cpu.sif.sha256)
  [[ "$(grep -c '^apptainer build' "$CALLS")" == 1 ]]
  grep -q 'bootstrap=debootstrap --build-arg mirror=http://mirror.example/debian' "$CALLS"
  run --separate-stderr bin/image DEVICE=cpu
  [[ "$status" == 0 && "$stderr" == "unchanged: "* && "$(grep -c '^apptainer build' "$CALLS")" == 1 ]]
  echo '# more' >>bin/clean
  run --separate-stderr bin/image DEVICE=cpu
  [[ "$status" == 0 && "$(grep -c '^apptainer build' "$CALLS")" == 2 ]]
  tail -n 20 "$CALLS" | grep -q 'apptainer build .*bootstrap=localimage --build-arg from='
  run --separate-stderr bin/image-info DEVICE=cpu
  [[ "$status" == 0 && "$output" == *"is that of this checkout"* ]]
  echo '# still more' >>bin/clean
  run --separate-stderr bin/image-info DEVICE=cpu
  [[ "$output" == *"make image builds it anew"* ]]
}

@test "a build that fails leaves the image as it was and nothing half-made" {
  bin/image DEVICE=cpu 2>/dev/null
  local before
  before=$(sha256sum images/ecg-train-cpu.sif)
  echo '# more' >>bin/clean
  touch "$CALLS.fail"
  run --separate-stderr bin/image DEVICE=cpu
  [[ "$status" == 1 && "$stderr" == *"FATAL: no luck"*"the bundle on top of it failed"* ]]
  [[ "$(sha256sum images/ecg-train-cpu.sif)" == "$before" ]]
  [[ -z "$(find "$ECG_CACHE/images" -name '.build*')" ]]
}

@test "pip's settings of the machine reach the build, through files of the build alone" {
  printf '[global]\nindex-url = https://index.example/simple\nfind-links = %s\n' "$BATS_TEST_TMPDIR" >"$BATS_TEST_TMPDIR/pip.conf"
  stub apptainer 'case "$1" in build) cp "$(sed "s/.*--bind \([^:]*\):.*/\1/" <<<"$*")/settings.sh" "$CALLS.settings"; : >"${*: -2:1}" ;; inspect) cat "${*: -1}" ;; *) exit 1 ;; esac'
  ECG_BASE_PYTHON=$(command -v python3.11 || command -v python3.12 || command -v python3) PIP_CONFIG_FILE="$BATS_TEST_TMPDIR/pip.conf" run --separate-stderr bin/image DEVICE=cpu
  echo "$stderr"
  [[ "$status" == 0 ]]
  grep -q '^export PIP_INDEX_URL=https://index.example/simple$' "$CALLS.settings"
  grep -q '^export PIP_FIND_LINKS=' "$CALLS.settings"
  run grep -rl 'index.example' bin requirements Apptainer.def
  [[ -z "$output" ]]
}

@test "a mirror means debootstrap, and is refused beside another base or when it is no address" {
  run --separate-stderr bin/image MIRROR=http://mirror.example/debian BASE=docker://debian:12
  refused "MIRROR=http://mirror.example/debian" "debootstrap"
  run --separate-stderr bin/image MIRROR='x; true'
  refused 'MIRROR=x\;\ true is no http'
  MIRROR=http://other.example/debian run --separate-stderr bin/image DEVICE=cpu MIRROR=http://other.example/debian
  [[ "$status" == 0 ]]
  grep -q 'bootstrap=debootstrap --build-arg mirror=http://other.example/debian' "$CALLS"
}

@test "what a killed build left is swept away by the next one" {
  mkdir -p "$ECG_CACHE/images/.build.killed/deep"
  chmod 500 "$ECG_CACHE/images/.build.killed"
  run --separate-stderr bin/image DEVICE=cpu
  [[ "$status" == 0 && ! -e "$ECG_CACHE/images/.build.killed" && -s images/ecg-train-cpu.sif ]]
}
