# SPDX-License-Identifier: Apache-2.0
"""Client of blockswapd: submit, plan, watch and wait for training jobs."""

from blockswap.client import Client
from blockswap.errors import Error, JobCancelled, JobFailed, Violation
from blockswap.job_file import load_spec

__all__ = ["Client", "Error", "JobCancelled", "JobFailed", "Violation", "load_spec"]
