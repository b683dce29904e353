"""From recordings to training data: WFDB records become token shards with a manifest.

python -m data_prep convert --dataset mitdb --src DIR --out DATA
python -m data_prep inspect --dataset mitdb --data DATA
"""
