"""How the work itself can fail."""


class WorkError(RuntimeError):
    """The request was sound and the work failed, for instance on a full disk: exit status 1."""
