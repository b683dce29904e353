"""`python -m analysis`."""

from __future__ import annotations

from analysis.cli import main

if __name__ == "__main__":
    main()
