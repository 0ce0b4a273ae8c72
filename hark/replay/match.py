"""Look-up of a request among recorded ones, each given once (docs/spec/replay.md, "Look-up").

Pure. Rules: strict, normalised, renamed, else nothing; the nearest one is named and never given.
What is used stays used.
"""
