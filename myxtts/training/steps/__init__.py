"""The stages: each is what the producer computes and the objective that the consumer learns."""
