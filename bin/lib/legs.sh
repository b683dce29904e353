# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # names in capitals are the user's; those in small letters are of job.sh
# What a job runs, and in which order. A leg is a line: FW NODES GPUS REPEAT DATASET FIRST-NODE GROUP; those of one GROUP
# that is not "-" run at the same time. Needs common.sh, check.sh, request.sh.

# asked_legs: FW NODES GPUS REPEAT, one a line, each repeat by its number.
asked_legs() {
  local framework nodes gpus count size number
  if [[ -n "${LEGS:-}" ]]; then
    while read -r framework nodes gpus count; do
      if [[ -z "$framework" || "$framework" == \#* ]]; then continue; fi
      check_integer "LEGS: NODES" "$nodes" 1 65536
      check_integer "LEGS: GPUS" "$gpus" 1 65536
      check_integer "LEGS: REPEAT" "${count:-1}" 1 1000
      for ((number = 1; number <= ${count:-1}; number++)); do printf '%s %s %s %s\n' "$framework" "$nodes" "$gpus" "$number"; done
    done <<<"$LEGS"
    return
  fi
  for framework in $FW; do
    for size in $GPUS; do
      for ((number = 1; number <= REPEAT; number++)); do printf '%s %s %s %s\n' "$framework" "$NODES" "$size" "$number"; done
    done
  done
}

# shuffled SEED: the lines in an order that no drift of the machines can line up with.
shuffled() {
  awk -v seed="$1" 'BEGIN { srand(seed) } { printf "%.9f\t%s\n", rand(), $0 }' | sort -n | cut -f2-
}

# swept SEED: of the lines on stdin, the smallest (the baseline) first and once more at the end, all others shuffled.
swept() {
  local lines first framework nodes gpus repeat
  mapfile -t lines
  first=$(printf '%s\n' "${lines[@]}" | sort -s -n -k3,3 | head -n 1)
  printf '%s\n' "$first"
  printf '%s\n' "${lines[@]}" | awk -v first="$first" '!dropped && $0 == first { dropped = 1; next } { print }' | shuffled "$1"
  read -r framework nodes gpus _ <<<"$first"
  repeat=$(printf '%s\n' "${lines[@]}" | awk -v a="$framework" -v b="$nodes" -v c="$gpus" '$1 == a && $2 == b && $3 == c && $4 > m { m = $4 } END { print m + 1 }')
  printf '%s %s %s %s\n' "$framework" "$nodes" "$gpus" "$repeat"
}

# independent_legs: each member alone, then all at the same time, each on its own node, then the first alone again.
independent_legs() {
  local framework members=$NODES size sets number member
  read -ra sets <<<"$DATASET"
  for framework in $FW; do
    for size in $GPUS; do
      size=$((size / members))
      for ((number = 1; number <= REPEAT; number++)); do
        for ((member = 0; member < members; member++)); do
          printf '%s 1 %s %s %s %s -\n' "$framework" "$size" "$number" "${sets[member % ${#sets[@]}]}" "$member"
        done
        for ((member = 0; member < members; member++)); do
          printf '%s 1 %s %s %s %s together%s-%s-%s\n' "$framework" "$size" "$number" "${sets[member % ${#sets[@]}]}" "$member" "$framework" "$size" "$number"
        done
        printf '%s 1 %s %s %s 0 -\n' "$framework" "$size" "$((REPEAT + number))" "${sets[0]}"
      done
    done
  done
}

# make_plan FILE: the legs in their order. It is made once: a job that is started again keeps its order.
make_plan() {
  local seed asked known
  asked=$({ asked_legs && printf '%s|%s|%s' "$LAYOUT" "$DATASET" "$NODES"; } | sha256sum | cut -c1-16)
  if [[ -e "$1" ]]; then
    read -r _ _ known _ seed <"$1"
    if [[ "$known" == "$asked" ]]; then return; fi
  fi
  seed=${ECG_ORDER_SEED:-$(od -An -N2 -tu2 /dev/urandom | tr -d ' \n')}
  {
    printf '# request %s seed %s\n' "$asked" "$seed"
    case "$LAYOUT" in
      independent) independent_legs ;;
      *) if [[ -n "${LEGS:-}" ]]; then asked_legs | swept "$seed"; else asked_legs; fi | awk -v d="$DATASET" '{ print $0, d, 0, "-" }' ;;
    esac
  } >"$1.part"
  mv -f "$1.part" "$1"
}

# check_leg: the leg that the variables describe can run in this job.
check_leg() {
  check_request
  [[ "$FW" != serial || "$GPUS" == 1 ]] || die "FW=serial is one worker by definition, but GPUS=$GPUS; use GPUS=1 or another FW"
  ((GPUS % NODES == 0)) || die "GPUS=$GPUS workers do not divide over NODES=$NODES"
  ((NODES + $1 <= job_nodes)) || die "a leg wants $((NODES + $1)) node(s), but this job has $job_nodes; raise --nodes, or lower NODES or LEGS"
  ((job_tasks == 0 || GPUS / NODES <= job_tasks)) ||
    die "GPUS=$GPUS on NODES=$NODES are $((GPUS / NODES)) workers a node, but this job has room for $job_tasks; raise --ntasks-per-node, or lower GPUS"
  [[ -e "$ECG_DATA/$DATASET/manifest.json" ]] ||
    die "there is no data set '$DATASET' in ECG_DATA=$(shown "$ECG_DATA"); copy it there, or mend the path in the job file"
}
