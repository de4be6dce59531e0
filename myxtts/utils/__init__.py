"""The import paths that the users' documents name. Re-exports only."""
