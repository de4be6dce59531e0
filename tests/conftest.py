"""Settings of the whole test suite."""

from __future__ import annotations

from hypothesis import settings

# Time belongs into bench/: a loaded machine must not fail a property.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
