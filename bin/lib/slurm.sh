# shellcheck shell=bash
# Asking Slurm, with options that every release from 20.11 on has. Needs common.sh.

require_slurm() {
  command -v sbatch >/dev/null ||
    die "there is no Slurm here (no sbatch on PATH); on a login node load it, or run on this machine: make run GPUS=${GPUS%% *} FW=${FW%% *}"
}

# partition_gpus PARTITION: GPUs of one of its nodes, 0 where it has none; the default partition for an empty name.
partition_gpus() {
  sinfo --noheader -o '%P|%G' 2>/dev/null | awk -F'|' -v wanted="$1" '
    { name = $1; star = sub(/\*$/, "", name) }
    (wanted == "" && star) || name == wanted {
      n = 0
      count = split($2, parts, ",")
      for (i = 1; i <= count; i++) if (match(parts[i], /^gpu:([^(:]*:)?[0-9]+/)) {
        one = substr(parts[i], RSTART, RLENGTH); sub(/.*:/, "", one); n += one
      }
      if (n > most) most = n
    }
    END { print most + 0 }'
}

require_partition() {
  if [[ -z "$1" ]]; then return; fi
  local known
  known=$(sinfo --noheader -o '%P' 2>/dev/null | tr -d '*' | sort -u | tr '\n' ' ')
  [[ " $known" == *" $1 "* ]] || die "partition $(shown "$1") does not exist here; choose from: ${known% }"
}

# job_state ID: one word of Slurm and the reason after a tab; nothing when Slurm has forgotten the job.
job_state() {
  local line
  line=$(squeue --noheader --jobs="$1" --states=all -o '%T|%r' 2>/dev/null | head -n 1 || true)
  if [[ -z "$line" ]]; then
    line=$(sacct --noheader --parsable2 --allocations --jobs="$1" --format=State,ExitCode 2>/dev/null | head -n 1 || true)
    line=${line%% by *}${line##* by *}
  fi
  printf '%s' "${line//|/$'\t'}"
}
