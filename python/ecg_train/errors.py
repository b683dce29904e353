"""Errors that are the user's to mend."""

from __future__ import annotations


class UserError(ValueError):
    """Say in one line what was given, what was wanted and what to type next.

    Every command catches it, prints ``error: <message>`` on stderr and exits with status 2.
    """
