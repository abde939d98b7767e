"""Where samplers run. Only this room knows of processes and machines."""

from smoothcert.executors.base import Executor, Job, Status
from smoothcert.executors.local import LocalExecutor

__all__ = ["Executor", "Job", "LocalExecutor", "Status"]
