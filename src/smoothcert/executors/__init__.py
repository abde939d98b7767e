"""Executors run the sampler: in this process, on several devices, or on a Ray cluster."""

from smoothcert.executors.base import Executor, Job, LocalExecutor, Status, choose_executor

__all__ = ["Executor", "Job", "LocalExecutor", "Status", "choose_executor"]
