"""What a person sees of a run: the event log, and the console, TensorBoard and report made from it.

Nothing here touches devices; only `tensorboard` imports TensorFlow, when it first writes.
"""
