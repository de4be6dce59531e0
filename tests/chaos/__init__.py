"""Faults by the thousand: training runs that are killed, starved and damaged at random, and must lose nothing.

`python -m tests.chaos --kills 1000 --minutes 600`. A trial is one run: processes follow each other in its folder, each
with a fault drawn from the trial's seed, until one trains to the end. Every loss that any of them wrote must be that of
the uninterrupted run, every process must go on at the newest checkpoint, and whatever does not succeed must say one
clear error. A process is forked from one that has TensorFlow loaded, trains the smallest model for a few steps, and
costs one or two CPU-seconds.
"""
