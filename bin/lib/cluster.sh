# shellcheck shell=bash
# A real Slurm of several isolated hosts on one machine. Needs common.sh.
#
# A host is a network namespace plus a process that holds its UTS and mount namespaces; its number is in run/<host>.pid.
# Entering by nsenter and not by `ip netns exec`, which would hide /sys/fs/cgroup, without which slurmd refuses to start.

NODES_COUNT=4
GPUS_PER_NODE=4
CORES_PER_NODE=16

# cluster_names: everything that differs between two clusters.
cluster_names() {
  NAME=${ECG_CLUSTER_NAME:-ecg}
  case "$NAME" in
    ecg) NET=10.77.0 PREFIX=n PARTITION=gpu CLUSTER_USER=ecguser PORT=26817 ;;
    second) NET=10.78.0 PREFIX=c PARTITION=accel CLUSTER_USER=ecgother PORT=26917 ;;
    *) die "ECG_CLUSTER_NAME='$NAME' is not known; choose from: ecg second" ;;
  esac
  DIR=${ECG_CLUSTER_DIR:-/var/lib/ecg-cluster}/$NAME
  [[ "$DIR" =~ ^/[A-Za-z0-9/_.-]+$ ]] || die "ECG_CLUSTER_DIR='$DIR' is not a plain absolute path"
  HOSTS=(login)
  local i
  for ((i = 1; i <= NODES_COUNT; i++)); do HOSTS+=("$PREFIX$i"); done
  export SLURM_CONF=$DIR/etc/slurm.conf PATH=$PATH:/usr/sbin:/sbin
}

# why_no_cluster: prints the reason and succeeds where it cannot be; fails where it can.
why_no_cluster() {
  if ((EUID != 0)); then
    echo "it needs root"
  elif ! command -v apt-get >/dev/null; then
    echo "it needs Debian or Ubuntu (apt-get)"
  elif ! unshare --net --mount --uts true 2>/dev/null; then
    echo "the kernel or a container forbids new namespaces (unshare --net --mount --uts)"
  else
    return 1
  fi
}

address() { if [[ "$1" == login ]]; then echo "$NET.1"; else echo "$NET.$((10 + ${1#"$PREFIX"}))"; fi; }

# on_host HOST COMMAND...: in its namespaces, as root.
on_host() {
  local host=$1
  shift
  if [[ "$1" == as_user ]]; then
    shift
    set -- "$DIR/etc/as-user" "$@"
  fi
  nsenter --target "$(cat "$DIR/run/$host.pid")" --net --uts --mount -- "$@"
}

make_user() {
  local home=$DIR/home
  mkdir -p "$home"
  if ! id "$CLUSTER_USER" >/dev/null 2>&1; then useradd --home-dir "$home" --shell /bin/bash "$CLUSTER_USER"; fi
  chown "$CLUSTER_USER": "$home"
  chmod 755 "$home"
}

# A user's login: nothing of root's environment.
write_as_user() {
  cat >"$DIR/etc/as-user" <<EOF_USER
#!/bin/bash
# Become the ordinary user in the folder ECG_CLUSTER_PWD, with a clean environment.
keep=(HOME="$DIR/home" USER="$CLUSTER_USER" LOGNAME="$CLUSTER_USER" PATH=/usr/local/bin:/usr/bin:/bin SLURM_CONF="$SLURM_CONF" LC_ALL=C)
cd "\${ECG_CLUSTER_PWD:-$DIR/home}" || exit 2
exec setpriv --reuid="$CLUSTER_USER" --regid="$CLUSTER_USER" --init-groups env -i "\${keep[@]}" "\$@"
EOF_USER
  chmod 755 "$DIR/etc/as-user"
}

make_files() {
  local host i
  chmod 755 "$(dirname "$DIR")" "$DIR"
  mkdir -p "$DIR"/{etc,run,log,state,dev,munge}
  chmod 755 "$DIR"/{etc,log,dev}
  : >"$DIR/etc/hosts"
  printf '127.0.0.1 localhost\n' >>"$DIR/etc/hosts"
  for host in "${HOSTS[@]}"; do printf '%s %s\n' "$(address "$host")" "$host" >>"$DIR/etc/hosts"; done
  for ((i = 0; i < GPUS_PER_NODE; i++)); do
    [[ -c "$DIR/dev/nvidia$i" ]] || mknod -m 666 "$DIR/dev/nvidia$i" c 1 3
  done
  printf 'Name=gpu File=%s/dev/nvidia[0-%s]\n' "$DIR" "$((GPUS_PER_NODE - 1))" >"$DIR/etc/gres.conf"
  # The controller and the nodes know each other by munge's key; a fresh one each time.
  (umask 077 && dd if=/dev/urandom of="$DIR/munge/key" bs=1024 count=1 status=none)
  chown -R munge: "$DIR/munge"
  cat >"$SLURM_CONF" <<EOF_CONF
ClusterName=$NAME
SlurmctldHost=login($(address login))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge/socket
CryptoType=crypto/munge
SlurmctldPort=$PORT
SlurmdPort=$((PORT + 1))
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool-%n
SlurmctldPidFile=$DIR/run/slurmctld-daemon.pid
SlurmdPidFile=$DIR/run/slurmd-%n-daemon.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobRequeue=1
EnforcePartLimits=ALL
KillWait=5
UnkillableStepTimeout=60
SlurmdTimeout=20
MinJobAge=3600
GresTypes=gpu
NodeName=${PREFIX}[1-$NODES_COUNT] NodeAddr=$NET.[11-$((10 + NODES_COUNT))] CPUs=$CORES_PER_NODE RealMemory=4000 Gres=gpu:$GPUS_PER_NODE State=UNKNOWN
PartitionName=$PARTITION Nodes=${PREFIX}[1-$NODES_COUNT] Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=${PREFIX}[1-2] MaxTime=5 State=UP
EOF_CONF
  write_as_user
}

# start_host HOST: its namespaces, held by a sleeping process. Names of hosts and /tmp are its own.
start_host() {
  local host=$1 link="${PREFIX}v${1/login/0}"
  ip netns add "ecg-$NAME-$host"
  ip link add "$link" type veth peer name eth0 netns "ecg-$NAME-$host"
  ip link set "$link" master "ecgbr-$PREFIX" up
  ip -n "ecg-$NAME-$host" addr add "$(address "$host")/24" dev eth0
  ip -n "ecg-$NAME-$host" link set eth0 up
  ip -n "ecg-$NAME-$host" link set lo up
  mkdir -p "$DIR/tmp-$host" "$DIR/spool-$host"
  chmod 1777 "$DIR/tmp-$host"
  # shellcheck disable=SC2016 # the inner shell expands it
  # Not a job of this shell, and no file of ours held open, or the lock would stay.
  nsenter --net="/run/netns/ecg-$NAME-$host" setsid unshare --uts --mount bash -c '
    hostname "$1"; mount --bind "$2" /tmp; mount --bind "$3" /etc/hosts; echo $$ >"$4"; exec sleep infinity' \
    _ "$host" "$DIR/tmp-$host" "$DIR/etc/hosts" "$DIR/run/$host.pid" 9>&- </dev/null >/dev/null 2>&1 &
  local tries=50
  until [[ -s "$DIR/run/$host.pid" ]] || ((tries-- == 0)); do sleep 0.1; done
}

start_all() {
  local host tries
  ip link add "ecgbr-$PREFIX" type bridge
  ip link set "ecgbr-$PREFIX" up
  for host in "${HOSTS[@]}"; do start_host "$host"; done
  chmod 711 "$DIR/munge"
  setpriv --reuid=munge --regid=munge --init-groups munged --key-file="$DIR/munge/key" --socket="$DIR/munge/socket" \
    --pid-file="$DIR/munge/pid" --log-file="$DIR/munge/log" --seed-file="$DIR/munge/seed" --num-threads=2 --force 9>&-
  on_host login slurmctld -c 9>&-
  for host in "${HOSTS[@]:1}"; do on_host "$host" slurmd -N "$host" 9>&-; done
  for ((tries = 150; tries > 0; tries--)); do
    if [[ "$(on_host login sinfo -h -p "$PARTITION" -t idle -o %D 2>/dev/null)" == "$NODES_COUNT" ]]; then return; fi
    sleep 0.2
  done
  on_host login sinfo -N -l || true
  tail -n 5 "$DIR"/log/*.log
  return 1
}

cluster_alive() { [[ -s "$DIR/run/login.pid" ]] && [[ "$(timeout 10 nsenter --target "$(cat "$DIR/run/login.pid")" --net --uts --mount -- sinfo -h -p "$PARTITION" -o %D 2>/dev/null | awk '{ n += $1 } END { print n }')" == "$NODES_COUNT" ]]; }

# cluster_remove: processes, namespaces and the bridge; also what a start that failed half-way left.
cluster_remove() {
  local host pid space pids
  for host in "${HOSTS[@]}"; do
    space=/run/netns/ecg-$NAME-$host
    if [[ -e "$space" ]]; then
      pids=$(ip netns pids "ecg-$NAME-$host" 2>/dev/null || true)
      # shellcheck disable=SC2086 # a list of numbers
      if [[ -n "$pids" ]]; then kill -KILL $pids 2>/dev/null || true; fi
      ip netns del "ecg-$NAME-$host" || true
    fi
    rm -f "$DIR/run/$host.pid"
  done
  ip link del "ecgbr-$PREFIX" 2>/dev/null || true
  if [[ -s "$DIR/munge/pid" ]]; then
    pid=$(cat "$DIR/munge/pid")
    if [[ "$(cat "/proc/$pid/comm" 2>/dev/null)" == munged ]]; then kill "$pid" 2>/dev/null || true; fi
    rm -f "$DIR/munge/pid" "$DIR"/munge/socket*
  fi
  rm -rf "$DIR/state" "$DIR"/spool-* "$DIR"/tmp-*
}
