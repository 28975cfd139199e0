"""The worker: claims jobs, runs them, stores their outcomes, and does the cluster's maintenance.

It knows stores only by their protocol. Processes and signals are in `windlass._cli.worker_process`.
"""
