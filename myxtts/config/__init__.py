"""Typed settings: dataclasses, presets, strict YAML. Imports nothing heavy."""
