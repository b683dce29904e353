# shellcheck shell=bash
# A site file to copy: facts of one system, each with the page that states it. Chosen by ECG_SITE=<name of the file> in
# env.local.sh, or on the command line. Only assignments of this form, so that a value of the user's own wins. What the
# documentation does not say stays out: an #SBATCH line without a value becomes a remark in the job file.

: "${ECG_PARTITION:=}"                    # --partition
: "${ECG_ACCOUNT:=}"                      # --account; personal, so better in env.local.sh
: "${ECG_QOS:=}"                          # --qos
: "${ECG_CONSTRAINT:=}"                   # --constraint
: "${ECG_TIME:=00:30:00}"                 # --time, unless TIME= is given
: "${ECG_GPU_REQUEST=--gpus-per-node=%g}" # %g: GPUs of a node; --gres=gpu:a100:%g where types are wanted; empty: none
: "${ECG_CPUS_PER_TASK:=4}"               # cores of a worker: those of a node divided by its GPUs
: "${ECG_EXCLUSIVE:=1}"                   # 0 where whole nodes cannot be had
: "${ECG_CONTAINER:=apptainer}"           # or singularity
: "${ECG_MODULES:=}"                      # what `module load` must bring for it, or for mpirun
: "${ECG_MPI:=auto}"                      # pmix, pmi2 or mpirun where probing guesses wrong
: "${ECG_HOST_SUFFIX:=}"                  # ending that makes a node's name that of its fast network
: "${ECG_SRUN_FLAGS:=}" "${ECG_CONTAINER_FLAGS:=}" "${ECG_BINDS:=}"
