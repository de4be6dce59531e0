"""Bad inputs by the hundred thousand: everything that reads a file or a text from outside gets mutated ones.

`python -m tests.fuzz --inputs 100000 --minutes 60`. Each input must be read or refused with a `MyXTTSError`, within
`MOST_SECONDS` of CPU time and `MOST_BYTES` more memory than before. Inputs are functions of the seed and their number.
"""

MOST_SECONDS = 2.0
MOST_BYTES = 300 * 2**20
