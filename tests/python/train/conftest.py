"""Fixtures of the training tests; the helpers stand in launching, which tests may import."""

from __future__ import annotations

from launching import data_dir as data_dir
