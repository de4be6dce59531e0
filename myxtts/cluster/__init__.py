"""Training beyond one machine: Ray places, moves and restarts what `pipeline` and `training` already do.

Only here is Ray imported, and only by functions: the planner is pure, and commands without --cluster do not need it.
"""
