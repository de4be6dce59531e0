"""What tests run in processes of their own, as modules: `tests.processes.run_program("NAME", ...)`."""
