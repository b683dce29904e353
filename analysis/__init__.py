"""Turn the log lines of training runs into scaling tables.

`python -m analysis report --results results` reads every run below `results/runs/` and writes `runs.csv`,
`steps.csv` and `report.txt`. One module per duty: `parse` (lines), `ingest` (files), `merge` (workers of a
run), `runs` (status), `metrics` (formulas), `compare` (which runs may be divided), `scaling` (rows),
`tables`, `report`, `cli`.
"""
