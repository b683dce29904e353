"""Command line of the data preparation.

python -m data_prep convert --dataset mitdb --src DIR --out DATA [--jobs N]
python -m data_prep synthetic --hours H --seed S --out DATA
python -m data_prep inspect --dataset mitdb --data DATA [--format json]
"""

import os

# One thread per worker process: a pool fills the cores already. To be set before NumPy is loaded.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

from data_prep.cli import main  # noqa: E402 - see above

if __name__ == "__main__":
    main(prog_name="data_prep")
