"""Executors run the sampler: in this process, on several devices, or on a Ray cluster."""

from smoothcert.executors.base import Executor, Job, Status
from smoothcert.executors.choose import choose_executor
from smoothcert.executors.local import LocalExecutor

__all__ = ["Executor", "Job", "LocalExecutor", "Status", "choose_executor"]
