#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

@test "a file that was edited, is missing or is too many fails the check, and make jobs mends it" {
  local file=jobs/pretrain_synthetic_tiny_ddp_n2_g2_strong.sbatch
  bin/jobs --check
  echo '# mine' >>"$file"
  run --separate-stderr bin/jobs --check
  [[ "$status" == 1 && -z "$output" && "$stderr" == *"# mine"*"run: make jobs"* ]]
  rm "$file"
  run --separate-stderr bin/jobs --check
  [[ "$status" == 1 && "$stderr" == *"Only in"*"$(basename "$file")"* ]]
  bin/jobs 2>/dev/null
  cp "$file" jobs/pretrain_mitdb_tiny_ddp_n9_g9_strong.sbatch
  run --separate-stderr bin/jobs --check
  [[ "$status" == 1 && "$stderr" == *"n9_g9"* ]]
  run --separate-stderr make -s jobs
  [[ "$status" == 0 && ! -e jobs/pretrain_mitdb_tiny_ddp_n9_g9_strong.sbatch ]]
  make -s check-jobs
}

@test "a placeholder that nobody fills is an error" {
  echo '# @NOBODY@' >>jobs/template.sbatch
  run --separate-stderr bin/jobs
  [[ "$status" == 1 && "$stderr" == *"@NOBODY@"* ]]
}

@test "a matrix with a wrong column, a wrong value, too few columns or a pair of twins is refused" {
  local line
  for line in 'FW	NODE' 'FW	NODES	GPUS\nddp	2	3' 'FW	NODES\nddp' 'FW	GPUS\nddp	1,1' 'FW	MODEL\nfoo	tiny'; do
    printf '%b\n' "$line" >jobs/matrix.tsv
    run --separate-stderr bin/jobs
    echo "$line: $status $stderr"
    [[ "$line" == 'FW	NODE' || ("$status" == 2 && "$stderr" == *error:*) ]]
  done
}

@test "nothing of the desk or the site of whoever generates gets into the files" {
  ECG_DATA=/secret ECG_PARTITION=secret ECG_ACCOUNT=secret STEPS=12345 SEED=99 ECG_SITE=leonardo run --separate-stderr bin/jobs --check
  [[ "$status" == 0 ]]
  printf ': "${ECG_ACCOUNT:=secret}" "${ECG_SITE:=leonardo}"\n' >env.local.sh
  bin/jobs --check
  run ! grep -l secret jobs/*.sbatch
}

@test "every file is sound bash for every shell, has only options of old and new Slurm, and ends with its launch" {
  local file count=0 options
  for file in jobs/*_*.sbatch; do
    bash -n "$file"
    [[ "$(head -n 1 "$file")" == '#!/bin/bash' && "$(tail -n 1 "$file")" == run_job ]]
    grep -q "^#SBATCH --job-name=$(basename "$file" .sbatch)\$" "$file"
    run ! grep -nE '@[A-Z_]+@' "$file"
    options=$(sed -n 's/^#\{1,2\}SBATCH --\([a-z-]*\).*/\1/p' "$file" | sort | tr '\n' ' ')
    [[ "$options" == "account constraint cpus-per-task exclusive gpus-per-node job-name nodes ntasks-per-node open-mode output partition qos requeue signal time " ]]
    count=$((count + 1))
  done
  ((count >= 30))
}

@test "the job files pass ShellCheck" {
  command -v shellcheck >/dev/null || skip "shellcheck is not installed"
  shellcheck jobs/*.sbatch sites/*.sh
  shellcheck -S warning jobs/*_mpi_*.sbatch
}

# write REQUEST...: a job file from the library, as bin/submit does it.
write() {
  local script='source bin/lib/common.sh; for l in check frameworks request jobfile; do source "$ECG_ROOT/bin/lib/$l.sh"; done
    set_request_defaults; check_request; write_jobfile "$OUT" && job_stem'
  OUT="$BATS_TEST_TMPDIR/job file" run --separate-stderr env OUT="$BATS_TEST_TMPDIR/job file" "$@" bash -euo pipefail -c "$script"
}

@test "values reach the file, those with spaces, quotes and dollars unharmed" {
  local odd='a "b" $c `d` {e} \f'
  write FW=horovod NODES=2 GPUS=4 ECG_ACCOUNT=p1 TIME=01:00:00 ECG_GPU_REQUEST=--gres=gpu:a100:%g "ECG_RESULTS=$BATS_TEST_TMPDIR/$odd" ECG_JOB_OUTPUT='/a b/%j.log' ECG_EXCLUSIVE=0
  [[ "$status" == 0 && "$output" == pretrain_mitdb_small_horovod_n2_g4_strong ]]
  local file="$BATS_TEST_TMPDIR/job file"
  grep -qE '^#SBATCH --account=p1 +# ' "$file"
  grep -qE '^#SBATCH --gres=gpu:a100:2 +# ' "$file"
  grep -qE '^#SBATCH --time=01:00:00 ' "$file"
  grep -qE '^##SBATCH --partition= ' "$file"
  grep -qE '^#SBATCH --output="/a b/%j.log"' "$file"
  run ! grep -q -- --exclusive "$file"
  unset ECG_RESULTS
  eval "$(sed -n '/ECG_RESULTS:=/p' "$file")"
  [[ "$ECG_RESULTS" == "$BATS_TEST_TMPDIR/$odd" ]]
}

@test "values that would break a line or a folder are refused" {
  local request
  for request in $'ECG_ACCOUNT=a\nb' 'ECG_PARTITION=a b' 'ECG_QOS=a #b' 'ECG_CONSTRAINT="x"' TIME=soon TIME='1;2' ECG_RESULTS=/a:b ECG_DATA=/a,b \
    LAYOUT=odd ECG_MPI=openmpi ECG_CONTAINER=docker ECG_EXCLUSIVE=x ECG_CPUS_PER_TASK=0 ECG_GPU_REQUEST='--x $(y)'; do
    write "$request"
    echo "$request: $status $stderr"
    [[ "$status" == 2 && "$stderr" == error:*"${request%%=*}"* && "${#stderr_lines[@]}" == 1 ]]
  done
  write NODES=2 GPUS=3 BATCH=3
  [[ "$status" == 2 && "$stderr" == *"GPUS=3 workers do not divide over NODES=2"* ]]
}

@test "sites: each is sound, only assigns, and names its source; the file of a job takes its facts" {
  local file
  for file in sites/*.sh; do
    bash -n "$file"
    run ! grep -vE '^(#|$|: "\$\{ECG_[A-Z_]+:?=[^"]*\}"( "\$\{ECG_[A-Z_]+:?=[^"]*\}")*( +#.*)?$)' "$file"
    [[ "$file" == */example.sh ]] || grep -qE '^# Sources?: https://' "$file"
  done
  write ECG_SITE=leonardo FW=ddp GPUS=4
  [[ "$status" == 0 ]]
  grep -qE '^#SBATCH --partition=boost_usr_prod ' "$BATS_TEST_TMPDIR/job file"
  grep -qE '^#SBATCH --gres=gpu:4 ' "$BATS_TEST_TMPDIR/job file"
  write ECG_SITE=lumi FW=ddp GPUS=4
  grep -qE '^##SBATCH +# GPUs' "$BATS_TEST_TMPDIR/job file"
  write ECG_SITE=lumi ECG_PARTITION=debug
  grep -qE '^#SBATCH --partition=debug ' "$BATS_TEST_TMPDIR/job file"
}

@test "an unknown site and a broken env.local.sh are named by every command" {
  ECG_SITE=atlantis run --separate-stderr bin/run
  refused "ECG_SITE='atlantis' is none of: example "
  printf 'A=1\nif then\n' >env.local.sh
  local command
  for command in run jobs data report; do
    run --separate-stderr "bin/$command"
    refused "/check out/env.local.sh: line 2: "
  done
}
